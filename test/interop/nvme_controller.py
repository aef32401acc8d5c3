"""A controller: what admin and fabrics commands do."""

import asyncio

from nvme_pages import *
from nvme_wire import *


class Controller:
    """From Connect of an admin queue to the end of its connection."""

    def __init__(self, target, connection, nqn, host_nqn, cntlid, kato_ms):
        self.target, self.settings, self.connection = target, target.settings, connection
        self.nqn, self.host_nqn, self.cntlid = nqn, host_nqn, cntlid
        self.is_discovery = nqn == DISCOVERY_NQN
        self.namespaces = target.subsystems.get(nqn, [])
        self.queues = {0: connection}
        self.cc = self.shutdown = self.events_wanted = 0
        self.ready_at = None
        self.event_requests, self.events, self.masked = [], [], set()
        self.changed, self.has_looked = set(), False
        self.kato_ms = self.watch = None
        self.set_kato(kato_ms)

    def end(self):
        """All its connections too."""
        self.watch.cancel()
        for connection in list(self.queues.values()):
            connection.close()

    # ---- keep alive ----

    def set_kato(self, kato_ms):
        self.kato_ms, self.heard = kato_ms, asyncio.get_running_loop().time()
        if self.watch:
            self.watch.cancel()
        self.watch = asyncio.ensure_future(self.watch_kato())

    async def watch_kato(self):
        loop = asyncio.get_running_loop()
        while True:
            left = self.heard + self.kato_ms / 1000 - loop.time()
            if self.kato_ms == 0 or not self.settings.kato_enforce or not self.target.running.is_set():
                left = max(left, 0.05)
            elif left <= 0:
                break
            await asyncio.sleep(left)
        self.target.count("kato_expired")
        self.end()

    def hear(self, command):
        if command.name == "keep_alive" or self.settings.tbkas:
            self.heard = asyncio.get_running_loop().time()

    # ---- events ----

    def has_ana(self):
        ana = self.settings.ana
        return not self.is_discovery and (ana > 0 or (ana < 0 and len(self.target.ports) > 1))

    def offered_events(self):
        if self.settings.oaes >= 0:
            return self.settings.oaes
        if self.is_discovery:
            return 1 << EVENT_DISCOVERY
        return 1 << EVENT_NAMESPACE | self.has_ana() << EVENT_ANA

    def notice(self, kind):
        if not self.events_wanted >> kind & 1:
            return
        info, log = NOTICES[kind]
        event = 2 | info << 8 | log << 16
        if event not in self.masked and event not in self.events:
            self.events.append(event)
        self.deliver()

    def deliver(self):
        """An event is masked until its log page was read."""
        while self.events and self.event_requests:
            event, request = self.events.pop(0), self.event_requests.pop(0)
            self.masked.add(event)
            if not request.done():
                request.set_result(event)
                self.target.count("events_sent")

    async def async_event(self, command):
        if len(self.event_requests) > self.settings.aerl:
            raise Refused(EVENT_LIMIT | DNR)
        request = asyncio.get_running_loop().create_future()
        self.event_requests.append(request)
        self.deliver()
        try:
            return await request, b""
        finally:
            if request in self.event_requests:
                self.event_requests.remove(request)

    # ---- properties ----

    def csts(self):
        s = self.settings
        ready = self.ready_at is not None and asyncio.get_running_loop().time() >= self.ready_at
        return (CSTS_RDY * (ready and not s.csts_never_ready)) | CSTS_CFS * s.csts_cfs | self.shutdown

    def property_get(self, command):
        s, offset = self.settings, command.dwords[11]
        css = s.css << 37 if not self.is_discovery else 1 << 37
        cap = s.mqes | 1 << 16 | s.cap_to << 24 | css | s.mpsmin << 48 | s.mpsmin << 52
        values = {CAP: cap, VS: s.version(), CC: self.cc, CSTS: self.csts()}
        if offset not in values or (command.dwords[10] & 7) != (offset == CAP):
            raise Refused(INVALID_FIELD | DNR)
        return values[offset]

    def property_set(self, command):
        if command.dwords[11] != CC or command.dwords[10] & 7:
            raise Refused(INVALID_FIELD | DNR)
        cc = command.dwords[12]
        if cc & 1 and not self.cc & 1:
            if cc >> 16 & 0xF != 6 or cc >> 20 & 0xF != 4 or cc >> 7 & 0xF != self.settings.mpsmin:
                raise Refused(INVALID_FIELD | DNR)
            self.ready_at, self.shutdown = asyncio.get_running_loop().time() + self.settings.ready_ms / 1000, 0
            self.heard = asyncio.get_running_loop().time()
        if not cc & 1:
            self.ready_at = None
        if cc >> 14 & 3 and not self.cc >> 14 & 3:
            self.shutdown = CSTS_SHST_DONE
            self.target.count("shutdowns")
        self.cc = cc
        return 0

    # ---- admin commands ----

    def active(self):
        return [ns for ns in self.namespaces if ns.blocks]

    def namespace(self, nsid):
        for ns in self.active():
            if ns.nsid == nsid:
                return ns
        raise Refused(INVALID_NAMESPACE | DNR)

    def admin(self, command):
        """(result, data) of all but Connect, Abort, async_event."""
        if command.opcode == FABRICS:
            fabrics = {PROPERTY_GET: self.property_get, PROPERTY_SET: self.property_set}
            if command.kind not in fabrics:
                raise Refused(INVALID_OPCODE | DNR)
            return fabrics[command.kind](command), b""
        if not self.csts() & CSTS_RDY:
            raise Refused(SEQUENCE_ERROR | DNR)
        if command.opcode == IDENTIFY:
            return 0, self.identify(command)
        if command.opcode == GET_LOG_PAGE:
            return 0, self.log_page(command)
        if command.opcode == SET_FEATURES:
            return self.set_feature(command), b""
        if command.opcode == GET_FEATURES:
            return self.get_feature(command), b""
        if command.opcode == KEEP_ALIVE and self.settings.kas:
            return 0, b""
        raise Refused(INVALID_OPCODE | DNR)

    def identify(self, command):
        cns, csi, nsid = command.dwords[10] & 0xFF, command.dwords[11] >> 24, command.nsid
        new = self.settings.version() >= 0x20000
        if command.length != 4096:
            raise Refused(SGL_LENGTH | DNR)
        if cns == 1:
            return identify_controller(self)
        if cns == 0:
            return identify_namespace(self.namespace(nsid), self.has_ana())
        if cns == 2 or (cns == 7 and new and csi == 0):
            return identify_list(self.active(), nsid)
        if cns == 3 and self.settings.descriptors and self.settings.version() >= 0x10300:
            return identify_ids(self.namespace(nsid))
        if cns == 5 and new and csi == 0:
            self.namespace(nsid)
            return bytes(4096)
        if cns == 6 and new and csi == 0:
            return identify_limits(self.settings)
        if cns == 8 and new:
            return identify_independent(self.namespace(nsid), self.has_ana())
        if cns == 0x1C and new:
            return page([(0, "Q", 1)])
        raise Refused(INVALID_FIELD | DNR)

    def set_feature(self, command):
        s, feature, value = self.settings, command.dwords[10] & 0xFF, command.dwords[11]
        if feature == FEAT_QUEUES and not self.is_discovery:
            if value & 0xFFFF == 0xFFFF or value >> 16 == 0xFFFF or s.max_queues == 0:
                raise Refused(INVALID_FIELD | DNR)
            granted = [min(asked, s.max_queues - 1) for asked in (value & 0xFFFF, value >> 16)]
            return granted[0] | granted[1] << 16
        if feature == FEAT_EVENTS:
            self.events_wanted = value & self.offered_events()
        elif feature == FEAT_KATO:
            self.set_kato(value)
        elif feature != FEAT_VWC or not s.vwc:
            raise Refused(INVALID_FIELD | DNR)
        return 0

    def get_feature(self, command):
        s, feature = self.settings, command.dwords[10] & 0xFF
        values = {FEAT_QUEUES: (s.max_queues - 1) * 0x10001, FEAT_EVENTS: self.events_wanted, FEAT_KATO: self.kato_ms}
        if s.vwc:
            values[FEAT_VWC] = 1
        if feature not in values:
            raise Refused(INVALID_FIELD | DNR)
        return values[feature]

    def log_page(self, command):
        log, keeps_event = command.dwords[10] & 0xFF, command.dwords[10] >> 15 & 1
        length = ((command.dwords[10] >> 16 | (command.dwords[11] & 0xFFFF) << 16) + 1) * 4
        offset = command.dwords[12] | command.dwords[13] << 32
        if length != command.length:
            raise Refused(SGL_LENGTH | DNR)
        if offset % 4:
            raise Refused(INVALID_FIELD | DNR)
        if log == LOG_DISCOVERY and offset == 0:
            self.look_at_list()
        content = self.log_content(log, command.dwords[10] >> 8 & 0x7F)
        if not keeps_event:
            self.masked = {event for event in self.masked if event >> 16 & 0xFF != log}
            if log == LOG_CHANGED:
                self.changed.clear()
        return content[offset : offset + length].ljust(length, b"\0")

    def look_at_list(self):
        if self.has_looked and self.settings.listed_changes > 0:
            self.settings.listed_changes -= 1
            self.target.generation += 1
            self.target.unlisted += 1
        self.has_looked = True

    def log_content(self, log, specific):
        target = self.target
        if log == LOG_DISCOVERY and self.is_discovery:
            return discovery_log(self.settings, target.generation, target.discovery_entries())
        if self.is_discovery:
            raise Refused(INVALID_LOG | DNR)
        if log in (LOG_ERROR, LOG_SMART, LOG_FIRMWARE, LOG_EFFECTS):
            return bytes(4096)
        if log == LOG_CHANGED:
            return changed_log(self.changed)
        if log == LOG_ANA and self.has_ana():
            port = self.connection.port
            return ana_log(port.ana, port.ana_changes, [ns.nsid for ns in self.active()], specific & 1)
        raise Refused(INVALID_LOG | DNR)
