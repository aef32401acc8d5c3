"""What nvme_target.py can be told: settings that stay, and faults that strike some times."""

import re

from nvme_wire import *

# KEY: (default, what it is). A number unless the default is a text.
HANDSHAKE = {
    "pfv": (0, "PDU format version of ICResp"),
    "cpda": (0, "alignment of the host's data, in dwords, from 0"),
    "digests": (3, "those that are done when the host asks: 1 header, 2 data"),
    "digests_forced": (0, "those that ICResp says, asked for or not"),
    "maxh2cdata": (131072, "bytes of one H2CData"),
    "digest_violations": (1, "1: a wrong data digest of the host counts as a violation too"),
    "sq_flow": (0, "1: the host's wish to have no SQ flow control is refused (no SUCCESS flag then)"),
    "authreq": (0, "AUTHREQ bits of Connect's result: 2 ATR, 4 ASCR"),
    "allow_host": ("", "the one host NQN that may connect"),
}
CONTROLLER = {
    "vs": ("2.0", "version"),
    "cap_to": (10, "CAP.TO, in 500 ms"),
    "mqes": (127, "CAP.MQES, from 0"),
    "mpsmin": (0, "CAP.MPSMIN"),
    "css": (1, "CAP.CSS: bit 0 NVM, bit 6 I/O command sets"),
    "csts_never_ready": (0, "1: CSTS.RDY stays 0"),
    "csts_cfs": (0, "1: CSTS.CFS is set"),
    "ready_ms": (0, "time from CC.EN to CSTS.RDY"),
    "max_queues": (16, "I/O queues that are granted"),
    "max_cmd": (-1, "MAXCMD, which Linux wants; -1: as many as a queue has entries"),
    "in_capsule_bytes": (8192, "data in an I/O capsule (IOCCSZ)"),
    "icdoff": (0, "ICDOFF"),
    "sgls": (1, "SGLS"),
    "cntrltype": (1, "kind of controller: 1 I/O, 2 discovery, 3 administrative"),
    "cntlid_add": (0, "Identify says the controller's id plus this"),
    "mdts": (8, "MDTS, of pages; 0: no limit"),
    "oncs": (0x0C, "4 dataset management, 8 write zeroes"),
    "no_dsm": (0, "1: without dataset management"),
    "vwc": (1, "volatile write cache"),
    "awupf": (0, "AWUPF, from 0"),
    "wzsl": (0, "WZSL"), "dmrl": (0, "DMRL"), "dmrsl": (0, "DMRSL"), "dmsl": (0, "DMSL"),
    "crdt": (0, "CRDT1 to 3, in 100 ms"),
    "kas": (10, "granularity of keep alive, in 100 ms; 0: none"),
    "kato_enforce": (1, "1: a controller that hears no keep alive ends"),
    "tbkas": (0, "1: every command keeps alive"),
    "aerl": (3, "event requests at a time, from 0"),
    "oaes": (-1, "events that are offered; -1: namespace, ANA, discovery as fits"),
    "ana": (-1, "1: ANA is reported; -1: with more than one address"),
    "anatt": (10, "ANATT, in seconds"),
    "abort": (1, "1: Abort ends a command that waits"),
    "serial": ("0123456789", ""), "model": ("ublkd test", ""), "firmware": ("1.0", ""),
}  # fmt: skip
NAMESPACE = {
    "block": (512, "bytes of a block"),
    "nsid": (1, "the first namespace"),
    "namespaces": (1, "how many each subsystem has; set at the start"),
    "ms": (0, "bytes of metadata of the format"),
    "dps": (0, "protection information"),
    "csi": (0, "command set of the descriptors"),
    "descriptors": (1, "0: Identify with CNS 3 is refused"),
    "flbas": (0, "format in use; there is one"),
    "noiob": (0, ""), "nsfeat": (0, ""), "npwg": (0, ""), "npwa": (0, ""), "npdg": (0, ""), "npda": (0, ""),
    "nows": (0, ""), "nawupf": (0, ""),
    "dlfeat": (9, ""), "nmic": (1, ""),
    "read_only": (0, "1: write protected"),
    "uuid": ("", "36 characters; none: not reported; empty: made of the NQN"),
    "nguid": ("", "32 digits; likewise"),
    "eui": ("", "16 digits; likewise"),
}  # fmt: skip
LISTED = {
    "listed_trtype": (3, "transport that the discovery log says: 1 RDMA, 3 TCP"),
    "listed_subtype": (0, "1 referral, 2 subsystem, 3 this controller; 0: as it is"),
    "listed_treq": (0, "1: TLS is required"),
    "listed_traddr": ("", "address; none: the true one"),
    "listed_trsvcid": ("", "port; none: the true one"),
    "listed_changes": (0, "so many looks at its header, after a host's first, find one entry less and a new generation"),
}  # fmt: skip
TRANSFER = {
    "c2h_bytes": (0, "data of one C2HData; 0: all"),
    "success": (1, "1: the SUCCESS flag instead of CapsuleResp, where the host has no SQ flow control"),
    "r2t_bytes": (0, "data of one R2T; 0: all"),
    "maxr2t": (0, "R2Ts of a command at a time; 0: as many as the host takes"),
    "first_ttag": (0, "of a connection; counts up"),
    "delay_ms": (0, "before each command is done, but events and keep alive"),
    "reorder": (0, "1: I/O commands end in any order"),
    "trickle": (0, "1: sent byte by byte"),
    "volatile": (0, "1: what was written without FUA and not flushed is lost at `crash`"),
    "inline_trap": (0, "1: as Linux' target once did: a write that fits a capsule and is not in one never ends"),
}
ID_BYTES = {"uuid": 16, "nguid": 16, "eui": 8}
SETTINGS = {**HANDSHAKE, **CONTROLLER, **NAMESPACE, **LISTED, **TRANSFER}

# Instead of what a command wants. FAULT: (which commands, what happens).
ANY, READS, WRITES = "any", "reads", "writes"
FAULTS = {
    "status": (ANY, ""),
    "stall": (ANY, "no answer, until Abort or the connection's end"),
    "hangup": (ANY, "the connection ends"),
    "term_req": (ANY, "C2HTermReq with this FES (1 when not told), then the connection ends"),
    "reject_connect": (ANY, "Connect fails with this status"),
    "wrong_cid": (ANY, "CapsuleResp for a command that is not under way"),
    "double_completion": (ANY, "two CapsuleResp"),
    "success_early": (ANY, "success with half of the data read, or before the data of a write came"),
    "bad_hdgst": (ANY, "wrong header digest of the answer's first PDU"),
    "bad_ddgst": (READS, "wrong data digest"),
    "oversize_pdu": (ANY, "PLEN of nearly 2 GiB"),
    "unknown_pdu": (ANY, "type 0x42"),
    "bad_hlen": (ANY, "another HLEN"),
    "bad_pdo": (ANY, "another PDO"),
    "bad_flags": (ANY, "the flag of a header digest the other way round"),
    "half_header": (ANY, "12 bytes of the answer, then the connection ends"),
    "half_silent": (ANY, "12 bytes of the answer, then nothing on this connection"),
    "data_outside": (READS, "C2HData behind the buffer"),
    "data_short": (READS, "half of the data, then CapsuleResp with success"),
    "data_twice": (READS, "the first piece of data twice"),
    "data_gap": (READS, "the first half of the data is left out"),
    "data_zero": (READS, "C2HData of 0 bytes"),
    "data_unknown_cid": (READS, "C2HData for a command that is not under way"),
    "data_to_write": (WRITES, "C2HData for a command that writes"),
    "r2t_too_long": (WRITES, "R2T for more than the command has"),
    "r2t_outside": (WRITES, "R2T that begins behind the data"),
    "r2t_unknown_cid": (WRITES, "R2T for a command that is not under way"),
    "r2t_twice": (WRITES, "a second R2T for what was asked for"),
    "r2t_zero": (WRITES, "R2T of 0 bytes"),
    "r2t_too_many": (WRITES, "one R2T more at a time than the host takes, 512 bytes each"),
    "r2t_for_read": (READS, "R2T for a command that reads"),
    "r2t_stall": (WRITES, "no R2T at all"),
    "write_after_all": (WRITES, "refused (0x06, internal error), although it was written"),
    "icresp_again": (ANY, "ICResp instead of an answer"),
    "icresp_silent": ("connection", "no ICResp"),
    "accept_close": ("connection", "closed instead of ICResp"),
    "icresp_garbage": ("connection", "what an SSH server says"),
}
KEYS_HELP = """keys of --set and `set`:

Settings stay until they are changed; those of the handshake and of Connect count from the next one on.
{settings}
  cut_after = BYTES           the connection that sends this many bytes, counted over all of them from now on,
                              is cut there; once
  cut_each = BYTES            every connection is cut there; 0: none

Faults strike N times, once when N is not told, `always`, or 0: no more. Behind the number may stand, each
behind a colon: cmd=NAME, only this command; after=N, N occasions are left alone. NAME is one of
{names},
io.0xNN or admin.0xNN. Without cmd= only I/O commands are struck.
  status = NAME:SCT:SC[:dnr][:crd=1..3][:late][:count=N | :always][:after=N]
                              the command fails; crd: to be tried again after CRDT of that number; late:
                              after the data of a write came; NAME may be any
  reject_connect = SCT:SC[:dnr][:result=DW0][:count=N | :always]
  term_req = FES[:count=N | :always][:cmd=NAME][:after=N]
{faults}
"""


def keys_help():
    def shown(key, value, words):
        return f"  {f'{key} = {value}':<27} {words}".rstrip()

    settings = "\n".join(shown(key, *row) for key, row in SETTINGS.items())
    faults = "\n".join(f"  {name:<27} {words}" for name, (_, words) in FAULTS.items()
                       if name not in ("status", "reject_connect", "term_req"))  # fmt: skip
    names = ", ".join(NAMES[:8]) + ",\n" + ", ".join(NAMES[8:])
    return KEYS_HELP.format(settings=settings, faults=faults, names=names)


def command_name(name):
    if name == "any" or name in NAMES:
        return name
    match = re.fullmatch(r"(io\.|admin\.)?(0x[0-9a-f]+|\d+)", name.lower())
    if not match:
        raise ValueError(f"no command is called {name!r}")
    number = int(match[2], 0)
    names, prefix = (ADMIN_NAMES, "admin.") if match[1] == "admin." else (IO_NAMES, "")
    return names.get(number, f"{prefix}{number:#x}")


class Fault:
    """One line of those that say what goes wrong."""

    def __init__(self, name, value):
        self.name, self.which = name, FAULTS[name][0]
        self.times, self.after, self.cmd, self.late, self.result = 1, 0, "any", False, 0
        words = re.split(r"[:\s]+", value.strip()) if value.strip() else []
        if name == "status":
            self.cmd = command_name(words.pop(0))
        if name == "reject_connect":
            self.cmd = "connect"
        self.status = self.take_status(words) if name in ("status", "reject_connect") else 0
        self.fes = int(words.pop(0), 0) if name == "term_req" and words else HEADER_FIELD
        while words:
            self.take_word(words)

    @staticmethod
    def take_status(words):
        if len(words) < 2:
            raise ValueError("a status is SCT:SC")
        return (int(words.pop(0), 0) & 7) << 8 | int(words.pop(0), 0) & 0xFF

    def take_word(self, words):
        key, _, value = words.pop(0).partition("=")
        if key == "count" and not value:
            value = words.pop(0)
        if key == "always":
            self.times = -1
        elif key == "dnr" and self.status:
            self.status |= DNR
        elif key == "crd" and self.status:
            self.status |= (int(value) & 3) << 11
        elif key == "late":
            self.late = True
        elif key == "count" or key.isdigit():
            self.times = int(value or key)
        elif key == "after":
            self.after = int(value)
        elif key == "result":
            self.result = int(value, 0)
        elif key == "cmd":
            self.cmd = command_name(value)
        else:
            raise ValueError(f"{self.name} knows no {key!r}")

    def fits(self, command, connection):
        if command is None or self.which == "connection":
            return command is None and self.which == "connection"
        if self.cmd != "any" and self.cmd != command.name:
            return False
        # what bring-up needs is left alone unless it was named
        if self.cmd == "any" and command.admin:
            return False
        if self.name == "bad_hdgst" and not connection.wire.hdgst:
            return False
        if self.name == "bad_ddgst" and not connection.wire.ddgst:
            return False
        if self.which == READS:
            return command.to_host() and command.length > 0
        if self.which == WRITES:
            return command.to_controller() and not (self.name.startswith("r2t") and command.data)
        return self.name != "success_early" or (command.length > 0 and not command.data)


class Settings:
    """All that was told."""

    def __init__(self):
        for key, (value, _) in SETTINGS.items():
            setattr(self, key, value)
        self.faults, self.struck = [], {}
        self.cut_after = self.cut_each = 0

    def change(self, line):
        """KEY=VALUE or KEY VALUE."""
        key, _, value = re.sub(r"[\s=]+", "=", line.strip(), count=1).partition("=")
        if key in FAULTS:
            # the last word on a fault counts; of statuses, there may be one for each command
            fault = Fault(key, value)
            self.faults = [f for f in self.faults if (f.name, f.cmd) != (key, fault.cmd)]
            self.faults.append(fault)
        elif key in SETTINGS:
            setattr(self, key, self.checked(key, value.strip()))
        elif key in ("cut_after", "cut_each"):
            setattr(self, key, int(value, 0))
        else:
            raise ValueError(f"nothing is called {key!r}")

    @staticmethod
    def checked(key, value):
        if not isinstance(SETTINGS[key][0], str):
            return int(value, 0)
        if key in ID_BYTES and value not in ("", "none"):
            if len(bytes.fromhex(value.replace("-", ""))) != ID_BYTES[key]:
                raise ValueError(f"{key} has {ID_BYTES[key]} bytes")
        if key == "vs" and not re.fullmatch(r"\d+\.\d+(\.\d+)?", value):
            raise ValueError(f"{value!r} is no version")
        return value

    def version(self):
        major, minor, *third = (int(word) for word in self.vs.split("."))
        return major << 16 | minor << 8 | (third[0] if third else 0)

    def offered(self):
        return self.oncs & ~(4 if self.no_dsm else 0)

    def waiting(self):
        """Faults that have not struck as often as they are to."""
        return {fault.name: fault.times for fault in self.faults if fault.times}

    def take(self, command, connection):
        """The fault that strikes on this occasion (command None: a connection), or None."""
        for fault in self.faults:
            if fault.times == 0 or not fault.fits(command, connection):
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= fault.times > 0
            self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
            return fault
        return None
