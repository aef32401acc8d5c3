"""How an NBD server can go wrong: when a fault strikes, and what is said in the place of a reply.

A fault is one line: NAME [after=N] [times=N] [cmd=NAME] [error=NAME] [seconds=S] [bytes=N]. It leaves N
occasions alone (after), then strikes N of them (times; without end when not given).
"""

import random
import struct
import threading

from nbd_wire import *


class Hangup(Exception):
    """This end closes the connection."""


# ---- replies that no server may send: functions of (request, error, data, fault) to bytes ----


def content(request):
    return request.cmd == READ and request.structured


def bad_magic(request, error, data, fault):
    return struct.pack(">I", 0x12345678) + request.reply(error, data)[4:]


def cookie_unknown(request, error, data, fault):
    request.cookie ^= 0x5A5A5A5A5A5A5A5A
    return request.reply(error, data)


def twice(request, error, data, fault):
    return 2 * request.reply(error, data)


def chunk_outside(request, error, data, fault):
    return data_chunk(request, request.offset + request.length, data)


def chunk_before(request, error, data, fault):
    return data_chunk(request, (request.offset - 512) % 2**64, data)


def chunk_overlap(request, error, data, fault):
    half = data[: max(1, len(data) // 2)]
    return data_chunk(request, request.offset, half, 0) + data_chunk(request, request.offset, data)


def chunk_oversize(request, error, data, fault):
    return data_chunk(request, request.offset, data + bytes(4096))


def chunk_huge(request, error, data, fault):
    """Nearly all that a length can say, and only some of it."""
    length = 2**63 if request.extended else 2**32 - 1
    return chunk(request, DONE, OFFSET_DATA, struct.pack(">Q", request.offset) + data, length)


def chunk_missing(request, error, data, fault):
    return data_chunk(request, request.offset, data[: len(data) // 2])


def chunk_empty(request, error, data, fault):
    return chunk(request, DONE, OFFSET_DATA, struct.pack(">Q", request.offset))


def chunk_unknown(request, error, data, fault):
    return chunk(request, DONE, 77)


def chunk_status(request, error, data, fault):
    return chunk(request, DONE, STATUS, struct.pack(">III", 1, 4096, 0))


def hole_empty(request, error, data, fault):
    return hole_chunk(request, request.offset, 0) + request.reply(error, data)


def hole_oversize(request, error, data, fault):
    return hole_chunk(request, request.offset, request.length + 512, DONE)


def simple_to_read(request, error, data, fault):
    return simple(request.cookie, 0, data)


def error_text_long(request, error, data, fault):
    return chunk(request, DONE, ERROR, struct.pack(">IH", 5, 4000) + b"short")


def error_huge(request, error, data, fault):
    return chunk(request, DONE, ERROR, struct.pack(">IH", 5, 5) + b"short", 2**31)


def error_zero(request, error, data, fault):
    return error_chunk(request, 0, b"all is well")


def error_outside(request, error, data, fault):
    payload = struct.pack(">IHQ", 5, 0, request.offset + request.length)
    return chunk(request, DONE, ERROR_OFFSET, payload)


def fragments(request, error, data, fault):
    """Allowed: many chunks in any order, holes among them."""
    step = max(512, len(data) // 8)
    parts = []
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        zero = not any(piece)
        parts.append((request.offset + at, len(piece) if zero else bytes(piece)))
    random.shuffle(parts)
    out = [hole_chunk(request, at, piece) if isinstance(piece, int) else data_chunk(request, at, piece, 0)
           for at, piece in parts]  # fmt: skip
    return b"".join(out) + chunk(request, DONE, NONE)


def any_reply(request):
    return True


def chunks_only(request):
    return request.structured


REPLIES = {
    "bad-magic": (any_reply, bad_magic),
    "cookie-unknown": (any_reply, cookie_unknown),
    "twice": (any_reply, twice),
    "chunk-outside": (content, chunk_outside),
    "chunk-before": (content, chunk_before),
    "chunk-overlap": (content, chunk_overlap),
    "chunk-oversize": (content, chunk_oversize),
    "chunk-huge": (content, chunk_huge),
    "chunk-missing": (content, chunk_missing),
    "chunk-empty": (content, chunk_empty),
    "chunk-unknown": (chunks_only, chunk_unknown),
    "chunk-status": (content, chunk_status),
    "hole-empty": (content, hole_empty),
    "hole-oversize": (content, hole_oversize),
    "simple-to-read": (content, simple_to_read),
    "error-text-long": (chunks_only, error_text_long),
    "error-huge": (chunks_only, error_huge),
    "error-zero": (chunks_only, error_zero),
    "error-outside": (chunks_only, error_outside),
    "fragments": (content, fragments),
    # in the session itself, as they have to do with more than the bytes of one reply
    "cookie-free": (any_reply, None),
    "error-endless": (chunks_only, None),
    "half-header": (any_reply, None),
    "half-payload": (content, None),
    "half-silent": (content, None),
    "stall": (any_reply, None),
    "slow": (any_reply, None),
    "reorder": (any_reply, None),
    "trickle": (any_reply, None),
}

# Before the server does what it is asked: "error" refuses, "drop" says yes and does nothing, "early"
# says yes before the payload has come, "hangup" closes without a word, "deaf" reads no more, "early-deaf" says
# yes and reads no more, "early-error" refuses before the payload has come, and reads it when its seconds are over;
# "early-error-hangup" closes instead.
REQUESTS = ("error", "early", "hangup", "deaf", "early-deaf", "early-error", "early-error-hangup")
# When a client has come; "close-at" counts the bytes that are sent to it.
ACCEPTS = ("accept-close", "accept-silent", "greeting-bad", "greeting-oldstyle", "close-at")
# When all is agreed upon.
SERVES = ("serve-close",)
# When an option has come.
OPTIONS = ("option-endless", "option-magic", "option-other", "option-huge", "option-silent", "tls-refused",
           "tls-required", "export-unknown", "shutting-down")  # fmt: skip


def point_of(name):
    points = {"reply": REPLIES, "request": REQUESTS, "accept": ACCEPTS, "serve": SERVES, "option": OPTIONS}
    for point, names in points.items():
        if name in names:
            return point
    raise ValueError(f"no fault is called {name!r}")


class Fault:
    def __init__(self, line):
        self.name, *words = line.split()
        self.point = point_of(self.name)
        values = dict(word.split("=", 1) for word in words)
        self.after = int(values.pop("after", 0))
        self.times = int(values.pop("times", -1))
        self.cmd = values.pop("cmd", None)
        self.error = ERRORS[values.pop("error", "EIO")]
        self.seconds = float(values.pop("seconds", 1))
        self.bytes = int(values.pop("bytes", 0))
        if values:
            raise ValueError(f"{self.name} knows no {', '.join(values)}")
        if self.cmd and self.cmd not in COMMANDS:
            raise ValueError(f"no command is called {self.cmd!r}")

    def fits(self, request, option):
        if request is None:
            # answers without end have a meaning for some options alone
            return self.name != "option-endless" or option in (GO, LIST)
        if self.cmd and self.cmd != request.name:
            return False
        if self.name.startswith("early") and request.cmd != WRITE:
            return False
        return self.point != "reply" or REPLIES[self.name][0](request)


class Faults:
    """Those that are set; any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.list = []
        self.struck = 0

    def add(self, line):
        fault = Fault(line)
        with self.lock:
            self.list.append(fault)

    def clear(self):
        with self.lock:
            self.list.clear()

    def left(self):
        """How many have not struck as often as they are to."""
        with self.lock:
            return sum(fault.times != 0 for fault in self.list)

    def take(self, point, request=None, option=None):
        """The fault that strikes on this occasion, or None."""
        if not self.list:
            return None
        with self.lock:
            for fault in self.list:
                if fault.point != point or fault.times == 0 or not fault.fits(request, option):
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.times -= fault.times > 0
                self.struck += 1
                return fault
        return None
