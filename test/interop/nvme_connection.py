"""One connection of a host: PDUs in and out, and a task for each command."""

import asyncio
import random
import socket
import struct
import sys
import traceback

from nvme_misbehave import Hangup, data_pieces, misbehave, misbehave_accept
from nvme_wire import *


class Transfer:
    """What one R2T asked for."""

    def __init__(self, command, buffer, start, length):
        self.command, self.buffer, self.at, self.end = command, buffer, start, start + length
        self.done = asyncio.get_running_loop().create_future()


class Connection:
    def __init__(self, target, port, reader, writer):
        self.target, self.settings, self.port = target, target.settings, port
        self.reader, self.writer = reader, writer
        self.wire, self.controller, self.qid = Wire(), None, 0
        self.entries, self.sq_head, self.no_sq_flow = 32, 0, False
        self.commands, self.transfers, self.ttag = {}, {}, self.settings.first_ttag
        self.sent, self.header, self.ended, self.silent = 0, b"", False, False

    # ---- bytes ----

    async def take(self, length):
        data = await self.reader.readexactly(length)
        self.target.count("bytes_received", length)
        await self.target.running.wait()
        return data

    async def send(self, data):
        await self.target.running.wait()
        if self.ended:
            raise Hangup("ended")
        if self.silent:
            return
        left = self.target.bytes_until_cut(self, len(data))
        part = data if left is None else data[:left]
        self.sent += len(part)
        self.target.count("bytes_sent", len(part))
        for piece in [part[at : at + 1] for at in range(len(part))] if self.settings.trickle else [part]:
            self.writer.write(piece)
        if left is not None:
            raise Hangup("cut")
        await self.writer.drain()

    def close(self, gently=False):
        """gently: what was sent still arrives."""
        if gently:
            self.writer.close()
        else:
            self.writer.transport.abort()
        self.end()

    def end(self):
        if self.ended:
            return
        self.ended = True
        for command in self.commands.values():
            command.task.cancel()
        self.target.forget(self)

    async def run(self):
        try:
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.initialize()
            while not self.ended:
                await self.receive_pdu()
        except Exception as error:
            await self.fail(error)
        finally:
            self.close(gently=True)

    async def fail(self, error):
        """Whatever ends this connection, here or in a command."""
        if isinstance(error, Violation):
            self.target.violation(str(error))
            try:
                await self.send_term(error.fes, error.fei, self.header)
            except (Hangup, OSError):
                pass
        elif not isinstance(error, (Hangup, OSError, asyncio.IncompleteReadError)):
            self.target.count("bugs")
            traceback.print_exception(error, file=sys.stderr)
        self.close(gently=True)

    async def send_term(self, fes, fei, header):
        self.target.count("term_sent")
        await self.send(term(C2H_TERM, fes, fei, header))

    async def send_pdu(self, kind, body, flags=0, data=b"", fault=None):
        out = pdu(kind, body, self.wire, flags, data, self.wire.hpda, fault if fault in MANGLES else None)
        if fault in ("half_header", "half_silent"):
            await self.send(out[:12])
            self.silent = True
            if fault == "half_header":
                raise Hangup(fault)
        self.target.count({C2H_DATA: "c2h_sent", R2T: "r2t_sent"}.get(kind, "responses"))
        await self.send(out)

    # ---- the beginning ----

    async def initialize(self):
        s, wire = self.settings, self.wire
        fault = s.take(None, self)
        if fault:
            await misbehave_accept(self, fault)
        self.header = await self.take(128)
        kind, _, hlen, _, plen, pfv, hpda, digests, maxr2t = struct.unpack("<BBBBIHBBI", self.header[:16])
        if kind != ICREQ:
            raise Violation(f"a PDU of type {kind:#x} before ICReq", SEQUENCE)
        for name, value, want, at in (("HLEN", hlen, 128, 2), ("PLEN", plen, 128, 4), ("PFV", pfv, 0, 8)):
            if value != want:
                raise Violation(f"ICReq with {name} {value}", UNSUPPORTED if at == 8 else HEADER_FIELD, at)
        if hpda > 31 or digests & ~3 or any(self.header[16:]):
            raise Violation(f"ICReq with HPDA {hpda}, digests {digests:#x}", HEADER_FIELD, 10)
        wire.hpda, wire.cpda, wire.maxr2t, wire.maxh2cdata = hpda, s.cpda, maxr2t + 1, s.maxh2cdata
        digests = digests & s.digests | s.digests_forced
        await self.send(icresp(s.pfv, s.cpda, digests, s.maxh2cdata))
        wire.hdgst, wire.ddgst = bool(digests & 1), bool(digests & 2)

    # ---- PDUs that come ----

    async def receive_pdu(self):
        self.header = await self.take(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", self.header)
        name = PDU_NAMES.get(kind)
        if kind == H2C_TERM:
            await self.on_term(plen)
        if kind not in (CAPSULE_CMD, H2C_DATA):
            raise Violation(f"a PDU of type {kind:#x}", SEQUENCE if name else HEADER_FIELD)
        if hlen != HLEN[kind]:
            raise Violation(f"{name} with HLEN {hlen}", HEADER_FIELD, 2)
        if bool(flags & HDGST) != self.wire.hdgst:
            raise Violation(f"{name} with flags {flags:#x}", HEADER_FIELD, 1)
        length = self.check_lengths(name, kind, flags, pdo, plen)
        self.header += await self.take(hlen - 8)
        if self.wire.hdgst:
            came = await self.take(4)
            if came != digest(self.header):
                self.target.count("header_digest_errors")
                raise Violation(f"{name} with a wrong header digest", HEADER_DIGEST, int.from_bytes(came, "little"))
        data, is_wrong = await self.take_data(pdo, length)
        if kind == CAPSULE_CMD:
            self.on_capsule(data, is_wrong)
        else:
            self.on_data(flags, data, is_wrong)

    def check_lengths(self, name, kind, flags, pdo, plen):
        """The bytes of data."""
        head = HLEN[kind] + 4 * self.wire.hdgst
        if pdo == 0:
            if plen != head or kind == H2C_DATA or flags & DDGST:
                raise Violation(f"{name} of {plen} bytes, flags {flags:#x}, PDO 0", HEADER_FIELD, 4)
            return 0
        if pdo < head or pdo % (4 * self.wire.cpda + 4):
            raise Violation(f"{name} with PDO {pdo}", HEADER_FIELD, 3)
        if bool(flags & DDGST) != self.wire.ddgst:
            raise Violation(f"{name} with data and flags {flags:#x}", HEADER_FIELD, 1)
        length = plen - pdo - 4 * self.wire.ddgst
        limit = self.wire.maxh2cdata
        if kind == CAPSULE_CMD:
            limit = ADMIN_IN_CAPSULE_BYTES if self.qid == 0 else self.settings.in_capsule_bytes
        if length <= 0 or length > limit:
            raise Violation(f"{name} with {length} bytes of data, at most {limit}", LIMIT)
        return length

    async def take_data(self, pdo, length):
        """(data, the digest is wrong)"""
        if not length:
            return b"", False
        await self.take(pdo - len(self.header) - 4 * self.wire.hdgst)
        data = await self.take(length)
        if not self.wire.ddgst or await self.take(4) == digest(data):
            return data, False
        self.target.count("data_digest_errors")
        if self.settings.digest_violations:
            self.target.violation("a wrong data digest")
        return data, True

    async def on_term(self, plen):
        body = await self.take(min(max(plen, 24), TERM_BYTES_MAX) - 8)
        fes, fei = struct.unpack("<HI", body[:6])
        self.target.terms.append({"fes": fes, "fei": fei, "pdu": body[16:].hex()})
        self.target.count("term_received")
        raise Hangup("terminated by the host")

    def on_data(self, flags, data, is_wrong):
        cid, ttag, offset, length = struct.unpack("<HHII", self.header[8:20])
        transfer = self.transfers.get(ttag)
        self.target.count("h2c_received")
        if not transfer or transfer.command.cid != cid:
            raise Violation(f"H2CData for command {cid:#x}, transfer {ttag:#x}", HEADER_FIELD, 8 if transfer else 10)
        if offset != transfer.at or length != len(data) or length > transfer.end - offset:
            raise Violation(f"H2CData of {length} ({len(data)}) bytes at {offset}, wanted were {transfer.at} to "
                            f"{transfer.end}", OUT_OF_RANGE)  # fmt: skip
        transfer.buffer[offset : offset + length] = data
        transfer.at += length
        transfer.command.is_wrong |= is_wrong
        if bool(flags & LAST) != (transfer.at == transfer.end):
            raise Violation(f"H2CData with flags {flags:#x} at {transfer.at} of {transfer.end}", HEADER_FIELD, 1)
        if flags & LAST:
            del self.transfers[ttag]
            if not transfer.done.done():
                transfer.done.set_result(None)

    # ---- commands ----

    def on_capsule(self, data, is_wrong):
        command = Command(self.header, self.qid == 0, data)
        command.is_wrong, command.aborted, command.fault = is_wrong, False, None
        if command.cid in self.commands:
            raise Violation(f"command identifier {command.cid:#x} is in use", HEADER_FIELD, 10)
        if not self.controller and command.name != "connect":
            raise Violation(f"{command.name} before Connect", SEQUENCE)
        if len(self.commands) >= self.entries - (self.controller is not None):
            raise Violation(f"{len(self.commands) + 1} commands in a queue of {self.entries} entries", LIMIT)
        self.sq_head = (self.sq_head + 1) % self.entries
        self.target.count_command(command, self.qid)
        command.task = asyncio.ensure_future(self.run_command(command))
        self.commands[command.cid] = command
        self.target.most("most_outstanding", len(self.commands) if self.qid else 0)

    async def run_command(self, command):
        try:
            try:
                await self.perform(command)
            except Refused as refused:
                await self.respond(command, refused.status, refused.result)
            except asyncio.CancelledError:
                if not command.aborted or self.ended:
                    raise
                await self.respond(command, ABORTED)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            await self.fail(error)

    async def perform(self, command):
        s = self.settings
        if self.controller:
            self.controller.hear(command)
        self.check_command(command)
        if s.delay_ms and command.name not in ("async_event", "keep_alive"):
            await asyncio.sleep(s.delay_ms / 1000)
        elif s.reorder and self.qid:
            await asyncio.sleep(random.random() / 500)
        fault = s.take(command, self)
        if fault:
            command.fault = fault.name
            if await misbehave(self, command, fault):
                return
        data = await self.fetch(command)
        if fault and fault.late:
            raise Refused(fault.status)
        result, out = await self.execute(command, data)
        if command.fault == "write_after_all":
            raise Refused(6)
        await self.answer(command, result, out)

    def check_command(self, command):
        if command.flags != 0x40:
            self.target.violation(f"{command.name} with flags {command.flags:#x}")
            raise Refused(INVALID_FIELD | DNR)
        if command.is_wrong:
            raise Refused(TRANSIENT)
        if command.sgl == SGL_IN_CAPSULE:
            if command.length != len(command.data) or command.sgl_offset or command.to_host():
                self.target.violation(f"{command.name}: SGL of {command.length} bytes at {command.sgl_offset}, the "
                                      f"capsule has {len(command.data)}")  # fmt: skip
                raise Refused(SGL_LENGTH | DNR)
        elif command.sgl != SGL_TRANSPORT or command.data:
            self.target.violation(f"{command.name}: SGL {command.sgl:#x}, the capsule has {len(command.data)} bytes")
            raise Refused(INVALID_FIELD | DNR)

    async def fetch(self, command):
        """The data of a command to the controller; R2Ts as far as they are needed."""
        s, total = self.settings, command.length
        if command.data or not command.to_controller():
            return command.data
        if total <= (s.in_capsule_bytes if self.qid else ADMIN_IN_CAPSULE_BYTES):
            self.target.count("small_outside_capsule")
            if s.inline_trap:
                await asyncio.get_running_loop().create_future()
        self.check_transfer(command)
        buffer, at, waiting = bytearray(total), 0, []
        while at < total or waiting:
            while at < total and len(waiting) < min(self.wire.maxr2t, s.maxr2t or self.wire.maxr2t):
                length = min(s.r2t_bytes or total, total - at)
                ttag, transfer = self.new_ttag(), Transfer(command, buffer, at, length)
                self.transfers[ttag] = transfer
                waiting.append(transfer)
                await self.send_pdu(R2T, data_body(command.cid, ttag, at, length))
                at += length
            await waiting.pop(0).done
        if command.is_wrong:
            raise Refused(TRANSIENT)
        return bytes(buffer)

    def check_transfer(self, command):
        s = self.settings
        if s.mdts and command.length > 1 << 12 + s.mpsmin + s.mdts:
            self.target.violation(f"{command.name} of {command.length} bytes, above MDTS")
            raise Refused(INVALID_FIELD | DNR)

    async def execute(self, command, data):
        """(result, data)"""
        if command.name == "connect":
            return self.connect(command, data), b""
        if command.name == "disconnect":
            return 0, b""
        if not self.qid:
            if command.opcode == ABORT:
                return await self.abort(command), b""
            if command.opcode == ASYNC_EVENT:
                return await self.controller.async_event(command)
            return self.controller.admin(command)
        return 0, self.execute_io(command, data)

    def execute_io(self, command, data):
        s = self.settings
        if not self.controller.csts() & CSTS_RDY:
            raise Refused(SEQUENCE_ERROR | DNR)
        needs = {DSM: 4, WRITE_ZEROES: 8}.get(command.kind, 0)
        if command.kind not in IO_NAMES or needs & ~s.offered():
            self.target.violation(f"{command.name} was not offered")
            raise Refused(INVALID_OPCODE | DNR)
        if self.port.ana in ANA_STATUS:
            self.target.count("ana_refused")
            raise Refused(ANA_STATUS[self.port.ana])
        if command.kind == FLUSH and command.nsid == 0xFFFFFFFF:
            for ns in self.controller.active():
                ns.execute(command, data)
            return b""
        if command.kind in (READ, WRITE):
            self.check_transfer(command)
        return self.controller.namespace(command.nsid).execute(command, data)

    async def abort(self, command):
        queue, cid = command.dwords[10] & 0xFFFF, command.dwords[10] >> 16
        connection = self.controller.queues.get(queue)
        victim = connection and connection.commands.get(cid)
        if not victim or victim is command or not self.settings.abort:
            return 1
        victim.aborted = True
        victim.task.cancel()
        await asyncio.wait([victim.task])
        return 0

    # ---- Connect ----

    def connect(self, command, data):
        """Its result; the queue is there from now on."""
        recfmt, qid, sqsize, cattr = struct.unpack("<HHHB", command.sqe[40:47])
        kato_ms = command.dwords[12]
        if self.controller:
            raise Refused(SEQUENCE_ERROR | DNR)
        if recfmt or len(data) != 1024:
            raise Refused(CONNECT_FORMAT | DNR)
        if sqsize == 0 or (qid and sqsize > self.settings.mqes):
            raise Refused(CONNECT_PARAMETER | DNR, 44)
        nqn, host_nqn = text(data[256:512]), text(data[512:768])
        self.check_names(nqn, host_nqn)
        if not any(data[:16]):
            self.target.violation("Connect with a host identifier of zeroes")
            raise Refused(CONNECT_PARAMETER | DNR, 1 << 16)
        (cntlid,) = struct.unpack("<H", data[16:18])
        if qid == 0:
            controller = self.target.new_controller(self, nqn, host_nqn, cntlid, kato_ms)
        else:
            controller = self.find_controller(nqn, host_nqn, cntlid, qid)
        self.controller, self.qid, self.entries = controller, qid, sqsize + 1
        self.sq_head = 1 % self.entries
        self.no_sq_flow = bool(cattr & CATTR_NO_SQ_FLOW) and not self.settings.sq_flow
        return controller.cntlid | self.settings.authreq << 16

    def check_names(self, nqn, host_nqn):
        for name, at in ((nqn, 256), (host_nqn, 512)):
            if not is_nqn(name):
                self.target.violation(f"Connect with the NQN {name!r}")
                raise Refused(CONNECT_PARAMETER | DNR, 1 << 16 | at)
        if nqn != DISCOVERY_NQN and nqn not in self.target.subsystems:
            raise Refused(CONNECT_PARAMETER | DNR, 1 << 16 | 256)
        if self.settings.allow_host not in ("", host_nqn):
            raise Refused(CONNECT_HOST | DNR)

    def find_controller(self, nqn, host_nqn, cntlid, qid):
        controller = self.target.controllers.get(cntlid)
        if not controller or (controller.nqn, controller.host_nqn) != (nqn, host_nqn):
            raise Refused(CONNECT_PARAMETER | DNR, 1 << 16 | 16)
        if controller.is_discovery or qid > self.settings.max_queues:
            raise Refused(CONNECT_PARAMETER | DNR, 42)
        if qid in controller.queues or not controller.csts() & CSTS_RDY:
            raise Refused(SEQUENCE_ERROR | DNR)
        controller.queues[qid] = self
        return controller

    # ---- answers ----

    def free_cid(self):
        return next(cid for cid in range(0x7000, 0x10000) if cid not in self.commands)

    def new_ttag(self):
        ttag = self.ttag
        self.ttag = (ttag + 1) & 0xFFFF
        return ttag

    async def answer(self, command, result, data):
        fault = command.fault
        if data and await self.send_data(command, data):
            return
        if fault == "double_completion":
            await self.respond(command, 0, result)
        await self.respond(command, 0, result)

    async def send_data(self, command, data):
        """True: with SUCCESS, nothing more is to be said."""
        s, cid, fault = self.settings, command.cid, command.fault
        step = s.c2h_bytes or len(data)
        pieces = [(at, data[at : at + step], 0) for at in range(0, len(data), step)]
        success = s.success and self.no_sq_flow and fault not in ("double_completion", "data_short")
        pieces[-1] = pieces[-1][:2] + (LAST | (SUCCESS if success else 0),)
        if fault == "data_unknown_cid":
            cid = self.free_cid()
        pieces = data_pieces(pieces, data, fault)
        if pieces[-1][2] & SUCCESS:
            self.finish(command, 0)
        for offset, piece, flags in pieces:
            body = data_body(cid, 0, offset, len(piece))
            await self.send_pdu(C2H_DATA, body, flags, piece, fault)
            fault = None
        command.fault = fault
        return bool(pieces[-1][2] & SUCCESS)

    async def respond(self, command, status=0, result=0, cid=None):
        """cid: of another command, out of malice; the command itself then goes on waiting."""
        if cid is None:
            self.finish(command, status)
        head = 0 if self.no_sq_flow else self.sq_head
        if command.name == "connect" and self.no_sq_flow:
            head = 0xFFFF
        body = completion(command.cid if cid is None else cid, status, result, head, self.qid)
        await self.send_pdu(CAPSULE_RESP, body, fault=command.fault)

    def finish(self, command, status):
        """Before the last PDU: the host may use the identifier again as soon as it has it."""
        if self.commands.get(command.cid) is command:
            del self.commands[command.cid]
        self.target.finished(command, status)
