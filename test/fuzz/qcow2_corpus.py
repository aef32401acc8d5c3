#!/usr/bin/env python3
"""Writes corpus/qcow2_header and corpus/qcow2_snapshot: starts of images and tables that keep to the format, and a few that break it."""
import os
import struct

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
BACKING, NAMES, BITMAPS, CRYPTO, DATA = 0xE2792ACA, 0x6803F857, 0x23852875, 0x0537BE77, 0x44415441


def write(folder, name, first, *parts):
    path = os.path.join(TOP, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as out:
        out.write(bytes([first]) + b"".join(parts))


def padded(data):
    return data + bytes(-len(data) % 8)


# ---- headers: the first byte is how long the image is (fuzz_qcow2_header.c) ----


def extension(kind, data):
    return padded(struct.pack(">II", kind, len(data)) + data)


def feature(kind, bit, name):
    return struct.pack(">BB46s", kind, bit, name)


def header(version=3, bits=16, size=1 << 30, crypt=0, l1_entries=2, l1_at=3, table_at=1, table=1, snapshots=0, snapshots_at=0,
           incompatible=0, compatible=0, autoclear=0, order=4, length=112, compression=0, extensions=b"", backing=b""):
    """Offsets of tables are in clusters."""
    have = length if version == 3 else 72
    body = extensions + bytes(8)
    out = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", version, have + len(body) if backing else 0, len(backing), bits, size, crypt,
                      l1_entries, l1_at << bits, table_at << bits, table, snapshots, snapshots_at << bits)
    if version == 3:
        out += struct.pack(">QQQIIB", incompatible, compatible, autoclear, order, length, compression)
    return out.ljust(have, b"\0")[:have] + body + backing


def headers():
    put = lambda name, first=0, **fields: write("qcow2_header", name, first, header(**fields))
    back = extension(BACKING, b"raw")
    names = extension(NAMES, feature(0, 7, b"foo") + feature(0, 63, b"46 letters" + b"x" * 36) + feature(1, 0, b"lazy"))
    crypto = extension(CRYPTO, struct.pack(">QQ", 4 << 16, 2068480))
    bitmaps = lambda at: extension(BITMAPS, struct.pack(">IIQQ", 2, 0, 64, at << 16))
    put("plain")
    put("plain-length", 18)
    put("version-2", version=2, extensions=back, backing=b"back.raw")
    put("backing", 32, extensions=back + names, backing=b"/images/back.raw")
    put("small", 11, bits=9, size=512, l1_entries=1)
    put("large", bits=21, size=1 << 50, l1_entries=2048, l1_at=5)
    put("extended", incompatible=24, compression=1, l1_entries=4, compatible=1, extensions=names)
    put("data-file", incompatible=4, autoclear=2, extensions=extension(DATA, b"data.raw"))
    put("luks", crypt=2, extensions=crypto)
    put("bitmaps", 20, autoclear=1, extensions=bitmaps(5))
    put("snapshots", snapshots=3, snapshots_at=6)
    put("short", length=104)
    put("long", length=200, order=0)
    put("aes", crypt=1)
    put("unknown", incompatible=1 << 7 | 1 << 63, extensions=names)
    put("unknown-no-names", incompatible=1 << 7)
    put("dirty-corrupt", incompatible=3, order=6)
    put("all", bits=16, crypt=2, l1_entries=4, snapshots=65536, snapshots_at=100, incompatible=25, compression=1, compatible=1,
        autoclear=1, extensions=back + crypto + names + bitmaps(50) + extension(1, b"unknown"), backing=b"b" * 1023)
    put("cut", 17)


# ---- snapshots: the first byte is cluster size and kind of L2 entries (fuzz_qcow2_snapshot.c) ----


def snapshot(ident, name, l1_at=5, l1_entries=2, extra=24, state=0, size=1 << 30, bits=16):
    more = struct.pack(">QQQ", state, size, 0).ljust(extra, b"\xee")[:extra]
    return padded(struct.pack(">QIHHIIQII", l1_at << bits, l1_entries, len(ident), len(name), 1700000000, 5, 7, state & 0xFFFFFFFF,
                              extra) + more + ident + name)


def snapshots():
    put = lambda name, first, *entries: write("qcow2_snapshot", name, first, *entries)
    put("none", 7)
    put("three", 7, snapshot(b"1", b"first"), snapshot(b"2", b"second"), snapshot(b"3", b""))
    put("extras", 7, *(snapshot(b"1", b"name", extra=nr) for nr in (0, 8, 16, 24, 100, 1024)))
    put("state", 7, snapshot(b"77", b"with state", state=5 << 32), snapshot(b"78", b"more", state=1 << 20))
    put("long", 7, snapshot(b"i" * 255, b"n" * 255, extra=1024))
    put("small-clusters", 0, snapshot(b"1", b"a", bits=9, size=512))
    put("extended", 64 + 7, snapshot(b"1", b"b", l1_entries=16, bits=21))
    put("too-small", 7, snapshot(b"1", b"c", l1_entries=1))
    put("cut", 7, snapshot(b"1", b"first")[:50])


headers()
snapshots()
