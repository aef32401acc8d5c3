"""The NBD protocol's numbers and messages, as a server says them (doc/proto.md of NBD)."""

import struct

GREETING_MAGIC = b"NBDMAGIC"
OPTION_MAGIC, OPTION_REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
OLDSTYLE_MAGIC = 0x0000420281861253
REQUEST_MAGIC, EXTENDED_REQUEST_MAGIC = 0x25609513, 0x21E41C71
SIMPLE_MAGIC, STRUCTURED_MAGIC, EXTENDED_MAGIC = 0x67446698, 0x668E33EF, 0x6E8A278C

EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED, LIST_META, SET_META, EXTENDED = (
    1, 2, 3, 5, 6, 7, 8, 9, 10, 11)  # fmt: skip
ACK, REP_SERVER, REP_INFO, REP_META = 1, 2, 3, 4
UNSUP, POLICY, INVALID, TLS_REQD, UNKNOWN, SHUTDOWN = (1 << 31 | n for n in (1, 2, 3, 5, 6, 7))
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = 0, 1, 2, 3

READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
COMMANDS = ("read", "write", "disc", "flush", "trim", "cache", "write_zeroes", "block_status")
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << n for n in range(6))

HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF, MULTI_CONN = (
    1 << n for n in range(9))  # fmt: skip
SEND_CACHE, SEND_FAST_ZERO = 1 << 10, 1 << 11

DONE = 1
NONE, OFFSET_DATA, OFFSET_HOLE, STATUS, STATUS_EXT = 0, 1, 2, 5, 6
ERROR, ERROR_OFFSET = 0x8001, 0x8002
ERRORS = {"EPERM": 1, "EIO": 5, "ENOMEM": 12, "EINVAL": 22, "ENOSPC": 28, "EOVERFLOW": 75, "ENOTSUP": 95,
          "ESHUTDOWN": 108}  # fmt: skip


def option_reply(option, kind, data=b""):
    return struct.pack(">QIII", OPTION_REPLY_MAGIC, option, kind, len(data)) + data


def simple(cookie, error=0, data=b"", magic=SIMPLE_MAGIC):
    return struct.pack(">IIQ", magic, error, cookie) + data


def chunk(request, flags, kind, payload=b"", length=None, magic=None):
    """A chunk of the reply to a request; `length` is what it says of its payload."""
    length = len(payload) if length is None else length
    if request.extended:
        head = struct.pack(">IHHQQQ", magic or EXTENDED_MAGIC, flags, kind, request.cookie, request.offset, length)
    else:
        head = struct.pack(">IHHQI", magic or STRUCTURED_MAGIC, flags, kind, request.cookie, length)
    return head + payload


def data_chunk(request, offset, data, flags=DONE):
    return chunk(request, flags, OFFSET_DATA, struct.pack(">Q", offset) + bytes(data))


def hole_chunk(request, offset, length, flags=0):
    return chunk(request, flags, OFFSET_HOLE, struct.pack(">QI", offset, length))


def error_chunk(request, error, text=b"", flags=DONE):
    return chunk(request, flags, ERROR, struct.pack(">IH", error, len(text)) + text)


class Request:
    """One command, and how its reply is to be framed."""

    def __init__(self, head, structured, extended):
        if extended:
            magic, self.flags, self.cmd, self.cookie, self.offset, self.length = struct.unpack(">IHHQQQ", head)
        else:
            magic, self.flags, self.cmd, self.cookie, self.offset, self.length = struct.unpack(">IHHQQI", head)
        if magic != (EXTENDED_REQUEST_MAGIC if extended else REQUEST_MAGIC):
            raise ValueError(f"a request with magic {magic:#x}")
        if self.cmd >= len(COMMANDS):
            raise ValueError(f"a request of kind {self.cmd}")
        self.structured, self.extended = structured or extended, extended
        self.name = COMMANDS[self.cmd]

    def reply(self, error=0, data=b""):
        """As a server that keeps to the protocol says it."""
        if not self.structured:
            return simple(self.cookie, error, b"" if error else data)
        if error:
            return error_chunk(self, error)
        if self.cmd == READ:
            return data_chunk(self, self.offset, data)
        if self.cmd == BLOCK_STATUS:
            return chunk(self, DONE, STATUS_EXT if self.extended else STATUS, data)
        return chunk(self, DONE, NONE) if self.extended else simple(self.cookie)
