#!/usr/bin/env python3
"""Writes corpus/cache_index: headers and entries of the index of a cache that keep to the format (fuzz_cache_index.c)."""
import os
import struct

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "cache_index")


def write(name, first, data):
    os.makedirs(TOP, exist_ok=True)
    with open(os.path.join(TOP, name), "wb") as out:
        out.write(bytes([first]) + data)


def header(block=65536, slots=200, origin_bytes=20 << 20, version=1):
    return struct.pack("<8sIIQQQII128s", b"ublkdcac", version, 0, 1, 5, origin_bytes, block, slots, b"auto file 8:1:7")


def entries(*of):
    return b"".join(struct.pack("<QQQ", *entry) for entry in of)


write("header", 1, header())
write("header-small", 1, header(4096, 8, 512))
write("header-large", 1, header(262144, 1 << 24, 1 << 60))
write("header-plain", 0, header())
write("header-version", 1, header(version=2))
write("page", 2, entries((1, 0xFFFF, 0), (2, 3, 1), (0, 0, 0), (319, 0x8000, 0x8000)))
write("page-second", 3, entries(*[(i, 1, 0) for i in range(100)]))
write("page-twice", 2, entries((1, 1, 0), (1, 1, 0)))
