#!/usr/bin/env python3
"""Writes corpus/qcow2_luks and corpus/qcow2_decompress: headers of LUKS without what they point at; compressed clusters."""
import os
import random
import struct
import subprocess
import zlib

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
ENABLED, DISABLED = 0x00AC71F3, 0xDEAD


def write(folder, name, data):
    path = os.path.join(TOP, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as out:
        out.write(data)


# ---- LUKS: two bytes of length in KiB, then the header (fuzz_qcow2_luks.c) ----


def luks(kib, cipher=b"aes", mode=b"xts-plain64", hash_name=b"sha256", key=64, enabled=(0,), iterations=1000, stripes=4000):
    random.seed(1)
    sectors = key * 4000 // 512 + 4
    header = b"LUKS\xba\xbe" + struct.pack(">H32s32s32sII", 1, cipher, mode, hash_name, 8 + 8 * sectors, key)
    header += random.randbytes(20 + 32) + struct.pack(">I40s", iterations, b"01234567-89ab-cdef-0123-456789abcdef")
    for slot in range(8):
        state = ENABLED if slot in enabled else DISABLED
        header += struct.pack(">II", state, iterations) + random.randbytes(32)
        header += struct.pack(">II", 8 + slot * sectors, stripes)
    assert len(header) == 592
    return struct.pack(">H", kib) + header


write("qcow2_luks", "aes-256", luks(2020))
write("qcow2_luks", "aes-128", luks(1012, key=32, hash_name=b"sha1"))
write("qcow2_luks", "all-slots", luks(2020, hash_name=b"sha512", enabled=range(8)))
write("qcow2_luks", "last-slot", luks(2020, mode=b"xts-plain64:sha256", enabled=(7,)))
write("qcow2_luks", "no-slot", luks(0, enabled=()))
write("qcow2_luks", "short", luks(0))
write("qcow2_luks", "largest", luks(16384, iterations=1 << 27))
write("qcow2_luks", "too-large", luks(16385))
write("qcow2_luks", "twofish", luks(2020, cipher=b"twofish"))
write("qcow2_luks", "cbc", luks(2020, mode=b"cbc-essiv:sha256", key=32))
write("qcow2_luks", "stripes", luks(2020, stripes=1))

# ---- clusters: a byte that says which library and which size (fuzz_qcow2_decompress.c) ----

SIZES = [1, 512, 4096, 65536]


def deflate(data, **options):
    squeeze = zlib.compressobj(wbits=-12, memLevel=9, **options)
    return squeeze.compress(data) + squeeze.flush()


def zstd(data, *options):
    return subprocess.run(["zstd", "-c", "-q", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def cluster(size):
    random.seed(size)
    text = b"".join(random.choice([b"ublkd", b"qcow2 ", bytes(9), b"cluster of 64 KiB"]) for _ in range(size))
    return text[:size]


for nr, size in enumerate(SIZES):
    text = cluster(size)
    write("qcow2_decompress", f"zlib-{size}", bytes([nr << 1]) + deflate(text))
    write("qcow2_decompress", f"zstd-{size}", bytes([nr << 1 | 1]) + zstd(text, "--no-check"))
write("qcow2_decompress", "zlib-stored", bytes([1 << 1]) + deflate(cluster(512), level=0))
write("qcow2_decompress", "zlib-fixed", bytes([2 << 1]) + deflate(cluster(4096), strategy=zlib.Z_FIXED))
write("qcow2_decompress", "zlib-more", bytes([1 << 1]) + deflate(cluster(4096)))
write("qcow2_decompress", "zlib-less", bytes([3 << 1]) + deflate(cluster(4096)))
write("qcow2_decompress", "zstd-sum", bytes([2 << 1 | 1]) + zstd(cluster(4096), "--check", "-19"))
write("qcow2_decompress", "zstd-frames", bytes([2 << 1 | 1]) + zstd(cluster(4096)[:1000]) +
      struct.pack("<II", 0x184D2A50, 3) + b"abc" + zstd(cluster(4096)[1000:]))
write("qcow2_decompress", "zstd-noise", bytes([1 << 1 | 1]) + zstd(random.randbytes(512)))
