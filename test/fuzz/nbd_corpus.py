#!/usr/bin/env python3
"""Writes corpus/nbd_handshake and corpus/nbd_reply: sessions of servers that keep to the protocol."""
import os
import struct

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
EXPORT_NAME, LIST, STARTTLS, INFO, GO, STRUCTURED, SET_META, EXTENDED = 1, 3, 5, 6, 7, 8, 10, 11
ACK, SERVER, REP_INFO, META = 1, 2, 3, 4
UNSUP, POLICY, TLS_REQD, UNKNOWN = (1 << 31 | n for n in (1, 2, 5, 6))


def write(folder, name, first, *parts):
    path = os.path.join(TOP, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as out:
        out.write(bytes([first]) + b"".join(parts))


# ---- handshake: the first byte is the mode modulo 3 (GO, INFO, LIST), and flags: 4 TLS, 8, 16, 32
# without extended headers, structured replies, metadata; 6 is GO with TLS ----


def greeting(flags=3):
    return b"NBDMAGICIHAVEOPT" + struct.pack(">H", flags)


def rep(opt, kind, data=b""):
    return struct.pack(">QIII", 0x3E889045565A9, opt, kind, len(data)) + data


def infos(opt):
    return (
        rep(opt, REP_INFO, struct.pack(">HQH", 0, 1 << 30, 0x0FED))
        + rep(opt, REP_INFO, struct.pack(">HIII", 3, 512, 4096, 1 << 25))
        + rep(opt, REP_INFO, struct.pack(">H", 1) + b"disk")
        + rep(opt, REP_INFO, struct.pack(">H", 2) + b"of people")
        + rep(opt, ACK)
    )


CONTEXT = rep(SET_META, META, struct.pack(">I", 7) + b"base:allocation") + rep(SET_META, ACK)
BEST = rep(EXTENDED, ACK) + CONTEXT
MIDDLE = rep(EXTENDED, UNSUP, b"what?") + rep(STRUCTURED, ACK) + CONTEXT
WORST = rep(EXTENDED, UNSUP) + rep(STRUCTURED, UNSUP)
OLD_EXPORT = struct.pack(">QH", 1 << 20, 5)


def server(name, text):
    return rep(LIST, SERVER, struct.pack(">I", len(name)) + name + text)


def handshakes():
    put = lambda *args: write("nbd_handshake", *args)
    put("go-extended", 0, greeting(), BEST, infos(GO))
    put("go-structured", 0, greeting(), MIDDLE, infos(GO))
    put("go-simple", 0, greeting(), WORST, infos(GO))
    put("go-plain", 24, greeting(), infos(GO))
    put("go-no-meta", 33, greeting(), rep(EXTENDED, ACK), infos(GO))
    put("go-unknown", 0, greeting(), WORST, rep(GO, UNKNOWN, b"no such disk"))
    put("go-tls-required", 0, greeting(), rep(EXTENDED, TLS_REQD))
    put("name", 0, greeting(), WORST, rep(GO, UNSUP), OLD_EXPORT)
    put("name-zeroes", 0, greeting(1), WORST, rep(GO, UNSUP), OLD_EXPORT, bytes(124))
    put("name-newstyle", 0, greeting(0), OLD_EXPORT, bytes(124))
    put("info", 1, greeting(), BEST, infos(INFO))
    put("list", 2, greeting(), server(b"a", b"first"), server(b"", b""), rep(LIST, ACK))
    put("list-forbidden", 2, greeting(), rep(LIST, POLICY, b"secret"))
    put("tls-go", 6, greeting(), rep(STARTTLS, ACK), BEST, infos(GO))
    put("tls-refused", 6, greeting(), rep(STARTTLS, POLICY, b"no"))
    put("oldstyle", 0, b"NBDMAGIC", struct.pack(">QQI", 0x420281861253, 1 << 20, 1), bytes(124))


# ---- replies: READ of 64 bytes at 4096 are d, e, f; WRITE g, FLUSH h, TRIM i, WRITE_ZEROES j ----


def simple(cookie, error=0):
    return struct.pack(">IIQ", 0x67446698, error, cookie)


def chunk(wide, cookie, done, kind, data=b""):
    if wide:
        offset = 0 if cookie == ord("h") else 4096
        return struct.pack(">IHHQQQ", 0x6E8A278C, done, kind, cookie, offset, len(data)) + data
    return struct.pack(">IHHQI", 0x668E33EF, done, kind, cookie, len(data)) + data


def data(wide, cookie, done, at, nr):
    return chunk(wide, cookie, done, 1, struct.pack(">Q", 4096 + at) + bytes(range(at, at + nr)))


def hole(wide, cookie, done, at, nr):
    return chunk(wide, cookie, done, 2, struct.pack(">QI", 4096 + at, nr))


def error(wide, cookie, done, text, at=None):
    body = struct.pack(">IH", 5, len(text)) + text
    if at is None:
        return chunk(wide, cookie, done, 0x8001, body)
    return chunk(wide, cookie, done, 0x8002, body + struct.pack(">Q", 4096 + at))


def status(wide, cookie, done, extents):
    if wide:
        body = struct.pack(">II", 7, len(extents)) + b"".join(struct.pack(">QQ", *e) for e in extents)
        return chunk(wide, cookie, done, 6, body)
    body = struct.pack(">I", 7) + b"".join(struct.pack(">II", *e) for e in extents)
    return chunk(wide, cookie, done, 5, body)


def replies():
    put = lambda *args: write("nbd_reply", *args)
    d, e, f, g, h, i, j = (ord(c) for c in "defghij")
    put("simple", 0, simple(g), simple(e), bytes(range(64)), simple(d, 5), simple(h))
    put("simple-among-structured", 1, simple(g), data(0, d, 1, 0, 64), simple(h, 28))
    for wide, name in ((0, "structured"), (1, "extended")):
        first = 1 + wide
        none = lambda cookie: chunk(wide, cookie, 1, 0)
        put(name + "-one", first, data(wide, d, 1, 0, 64), none(g), data(wide, f, 1, 0, 64), none(h))
        put(name + "-many", first, data(wide, d, 0, 40, 24), data(wide, e, 0, 0, 1),
            hole(wide, d, 0, 10, 30), data(wide, e, 0, 1, 63), data(wide, d, 1, 0, 10), none(e))
        put(name + "-gaps", first, *(data(wide, d, 0, 2 * n, 1) for n in range(16)),
            *(data(wide, d, 0, 2 * n + 1, 1) for n in range(16)), data(wide, d, 1, 32, 32))
        put(name + "-status", first, status(wide, i, 1, [(4096, 0), (65536, 3)]),
            status(wide, j, 0, [(512, 1)]), none(j))
        put(name + "-errors", first, error(wide, g, 1, b"full"), data(wide, d, 0, 0, 64),
            error(wide, d, 0, b"bad", 10), none(d), error(wide, e, 0, b"", 3),
            data(wide, e, 1, 4, 60), error(wide, i, 1, b"none"))
    put("two-kinds", 1, simple(h), error(0, d, 0, b"late"), chunk(0, d, 1, 0))


handshakes()
replies()
