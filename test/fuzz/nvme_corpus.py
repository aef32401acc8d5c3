#!/usr/bin/env python3
"""Writes corpus/nvme_pdu, corpus/nvme_fabrics and corpus/nvme_auth: targets that keep to the protocol, and a few that break it."""
import os
import struct

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
HEADER, DATA, HPDA, R2TS, KEPT = 1, 2, 4, 8, 16
LAST, SUCCESS = 4, 8


def write(folder, name, first, *parts):
    path = os.path.join(TOP, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as out:
        out.write(bytes([first]) + b"".join(parts))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


# ---- PDUs: the first byte is what was asked for (fuzz_nvme_pdu.c). Commands: 0x100, 0x101 read 64
# bytes, 0x102 writes 128, 0x103 64 in its capsule, 0x104 has no data, 0x105 may read fewer ----


class Target:
    def __init__(self, how):
        self.how = how
        self.align = 32 if how & HPDA else 4

    def pdu(self, kind, flags, body, data=b""):
        hlen = 8 + len(body)
        head = hlen + (4 if self.how & HEADER else 0)
        pdo = (head + self.align - 1) // self.align * self.align if data else 0
        flags |= (1 if self.how & HEADER else 0) | (2 if data and self.how & DATA else 0)
        plen = (pdo + len(data) + (4 if self.how & DATA else 0)) if data else head
        out = struct.pack("<BBBBI", kind, flags, hlen, pdo, plen) + body
        out += crc32c(out) if self.how & HEADER else b""
        if data:
            out += bytes(pdo - len(out)) + data + (crc32c(data) if self.how & DATA else b"")
        return out

    def icresp(self):
        return struct.pack("<BBBBIHBBI", 1, 0, 128, 0, 128, 0, 0, self.how & 3, 4096) + bytes(112)

    def response(self, cid, status=0, result=0):
        return self.pdu(5, 0, struct.pack("<QHHHH", result, 1, 1, cid, status << 1))

    def data(self, cid, flags, at, nr):
        body = struct.pack("<HHIII", cid, 0, at, nr, 0)
        return self.pdu(7, flags, body, bytes(range(at, at + nr)))

    def r2t(self, cid, tag, at, nr):
        return self.pdu(9, 0, struct.pack("<HHIII", cid, tag, at, nr, 0))


def term(fes, fei, header):
    return struct.pack("<BBBBIHI", 3, 0, 24, 0, 24 + len(header), fes, fei) + bytes(10) + header


def pdus():
    for how, name in ((0, "plain"), (HEADER, "header"), (DATA, "data"), (HEADER | DATA, "both"), (HEADER | DATA | HPDA, "padded")):
        t = Target(how)
        put = lambda case, *parts: write("nvme_pdu", f"{name}-{case}", t.how, t.icresp(), *parts)
        put("reads", t.data(0x100, LAST, 0, 64), t.response(0x100), t.data(0x101, 0, 0, 10), t.data(0x101, LAST | SUCCESS, 10, 54))
        put("mixed", t.data(0x101, 0, 0, 32), t.data(0x100, 0, 0, 1), t.response(0x104, 0, 1 << 40),
            t.data(0x100, LAST, 1, 63), t.data(0x101, LAST, 32, 32), t.response(0x101), t.response(0x100))
        put("writes", t.r2t(0x102, 7, 0, 64), t.r2t(0x102, 8, 64, 64), t.response(0x102), t.response(0x103))
        put("errors", t.response(0x100, 0x4281), t.data(0x101, 0, 0, 8), t.response(0x101, 0x6), t.response(0x102, 0x280))
        put("short", t.data(0x105, LAST, 0, 8), t.response(0x105))
    many = Target(R2TS | KEPT)
    write("nvme_pdu", "r2ts-kept", many.how, many.icresp(), *(many.r2t(0x102, n, 32 * n, 32) for n in range(3)))
    write("nvme_pdu", "r2ts-too-many", many.how, many.icresp(), *(many.r2t(0x102, n, 32 * n, 32) for n in range(4)))
    plain = Target(0)
    write("nvme_pdu", "data-too-much", 0, plain.icresp(), plain.data(0x100, 0, 0, 32), plain.data(0x100, LAST, 32, 33))
    write("nvme_pdu", "term-long", 0, plain.icresp(), term(4, 0, bytes(128)), bytes(200))
    write("nvme_pdu", "term-too-long", 0, plain.icresp(), term(4, 0, bytes(500)))
    write("nvme_pdu", "term", 0, plain.icresp(), term(1, 20, plain.response(0x104)))
    write("nvme_pdu", "term-first", 0, term(6, 8, b""))


# ---- fabrics: the first byte is mode (ADMIN, DISCOVERY, IO), and by what the namespace is wanted;
# 32: the connection ends at the end, 64: ANA, all of 112: never ready, 128: no keep alive. Then what differs from a good
# controller: flags (1 result, 2 status, 4 fewer bytes, 8 SQHD), status, a byte, result; a number of
# bytes to bend ----


def change(flags=0, status=0, byte=0, result=None, bends=()):
    out = struct.pack("<BHB", flags, status, byte)
    out += struct.pack("<Q", result) if flags & 1 else b""
    return out + bytes([len(bends)]) + b"".join(struct.pack("<HB", *b) for b in bends)


def fabrics():
    put = lambda *args: write("nvme_fabrics", *args)
    same = change()
    for by in range(5):
        put(f"admin-{by}", 3 * by, same * 20)
        # a first byte with the bit of ANA, that says the same otherwise
        put(f"admin-{by}-ana", next(n for n in range(64, 128) if n & 96 == 64 and n % 3 == 0 and n // 3 % 5 == by), same * 20)
    put("discovery", 1, same * 9)
    put("io", 2, same)
    put("refused", 0, change(3, 0x4182, 0, 1 << 16 | 256))
    put("host", 0, change(2, 0x4184))
    put("auth", 0, change(1, 0, 0, 1 << 17 | 7))
    put("enabled", 0, same * 3, change(1, 0, 0, 0x460001), same, change(1, 0, 0, 1), change(1, 0, 0, 1), same * 12)
    put("slow", 0, same * 5, change(1, 0, 0, 0), change(1, 0, 0, 0), same * 12)
    put("fatal", 0, same * 5, change(1, 0, 0, 2))
    put("old", 6, same * 2, change(1, 0, 0, 0x10200), same * 12)
    put("bent", 0, same * 6, change(bends=((77, 5), (514, 9), (525, 1))), change(bends=((1, 3), (3, 9))), same * 3, change(bends=((24, 0x12), (64, 3), (46, 8))), same * 3)
    put("huge", 15, same * 11, change(bends=((6, 0x80),)), same * 3)
    put("never-ready", 114, same)
    put("gone", 32, same * 6)
    put("short", 0, same * 6, change(4, 0, 9))


# ---- authentication: the first byte is hash (of 3) and group, the second: 1 the controller is asked, 2 the host's
# key is wrong, 4 the controller's is, 8 failure1 by the upper half, 128 the connection ends at the end. Then, of a
# message of the controller, a number of bytes to bend; of each answer flags (1 status, 2 fewer bytes, 4 all bytes),
# status, a byte ----


def said(flags=0, status=0, byte=0, bends=None):
    out = b"" if bends is None else bytes([len(bends)]) + b"".join(struct.pack("<HB", *b) for b in bends)
    return out + struct.pack("<BHB", flags, status, byte)


def auth():
    put = lambda name, how, keys, *answers: write("nvme_auth", name, how, bytes([keys]), *answers)
    sent = said()
    for how in range(3):
        put(f"alone-{how}", how, 0, sent, said(bends=()), sent, said(bends=()))
        put(f"both-{how}", how, 1, sent, said(bends=()), sent, said(bends=()), sent)
    # no larger group: it takes long
    for how in (246, 247):
        put(f"group-{how}", how, 1, sent, said(4, bends=()), sent, said(4, bends=()), sent)
    put("host-key", 0, 3, sent)
    put("controller-key", 0, 5, sent)
    put("failure1", 0, 8 + 3 * 16, sent)
    put("gone", 0, 129, sent)
    put("status", 1, 1, sent, said(1, 0x4006, bends=()))
    put("short", 1, 1, sent, said(2, byte=20, bends=()))
    put("other-hash", 0, 1, sent, said(4, bends=((8, 2), (6, 80))), sent, said(bends=()), sent)
    put("other-group", 0, 1, sent, said(4, bends=((9, 1), (11, 1))), sent)
    put("unproved", 0, 1, sent, said(bends=()), sent, said(bends=((8, 1),)), sent)
    put("bad-proof", 0, 1, sent, said(bends=()), sent, said(bends=((47, 1),)), sent)


pdus()
fabrics()
auth()
