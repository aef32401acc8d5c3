#!/usr/bin/env python3
"""Makes qcow2 images with something wrong, for qcow2_hostile.sh.

usage: qcow2_hostile.py named FOLDER            one image for each case below
       qcow2_hostile.py flips FOLDER SEED NUMBER IMAGE...   NUMBER copies of the images, each with bytes of its
                                                metadata changed

named: FOLDER/NAME.qcow2, NAME.tree, NAME.script for node_io, and NAME.want: "rw WORDS" and "ro WORDS" with a
regular expression of the words by which the image must be refused, or "rw" and "ro" alone where the script must
run. want.raw: what a guest reads where nothing is wrong.
"""
import os
import random
import struct
import sys

CLUSTER = 65536
COPIED, COMPRESSED, ZERO = 1 << 63, 1 << 62, 1
REFTABLE, REFBLOCK, L1, L2, DATA = (n * CLUSTER for n in range(1, 6))
DATA_NR = 8  # clusters of the guest that are there, from the first on
SIZE = 4 << 20


def pattern(n):
    return bytes([n + 1]) * CLUSTER


class Image:
    """A disk of 4 MiB. All is plain bytes: cases change what they like."""

    def __init__(self, extended=False):
        self.bytes = bytearray(DATA + DATA_NR * CLUSTER)
        self.words = 2 if extended else 1
        self.put32(0, 0x514649FB, 3)
        self.put32(20, 16)
        self.put64(24, SIZE)
        self.put32(36, 1)
        self.put64(40, L1, REFTABLE)
        self.put32(56, 1)
        self.put64(72, 16 if extended else 0)
        self.put32(96, 4, 104)
        self.put64(REFTABLE, REFBLOCK)
        for cluster in range(len(self.bytes) // CLUSTER):
            self.count(cluster, 1)
        self.put64(L1, L2 | COPIED)
        for n in range(DATA_NR):
            self.entry(n, DATA + n * CLUSTER | COPIED, 0xFFFFFFFF)
            at = DATA + n * CLUSTER
            self.bytes[at:at + CLUSTER] = pattern(n)

    def put32(self, at, *values):
        struct.pack_into(f">{len(values)}I", self.bytes, at, *values)

    def put64(self, at, *values):
        struct.pack_into(f">{len(values)}Q", self.bytes, at, *values)

    def count(self, cluster, value):
        struct.pack_into(">H", self.bytes, REFBLOCK + 2 * cluster, value)

    def entry(self, n, value, bits=None):
        self.put64(L2 + n * 8 * self.words, value)
        if self.words == 2 and bits is not None:
            self.put64(L2 + n * 16 + 8, bits)

    def extension(self, kind, data):
        self.bytes[104:104 + 8 + len(data)] = struct.pack(">II", kind, len(data)) + data


CASES = {}


def script(fails, others, image):
    """The clusters that fail, and that all others are as they were."""
    if image.bytes[24:32] != struct.pack(">Q", SIZE):
        return []
    lines = ["load want.raw"]
    for n in range(DATA_NR):
        if n in fails:
            lines.append(f"fails {n * CLUSTER} {CLUSTER}")
        elif others and fails:
            lines.append(f"read {n * CLUSTER} {CLUSTER}")
    return lines


def case(rw="", ro="", fails=(), others=True, then=(), extended=False, sparse_bytes=0):
    """Words by which it is refused; else: clusters of the guest of which each READ fails, and more lines."""
    def add(change):
        image = Image(extended)
        change(image)
        CASES[change.__name__] = (image, rw, ro, script(fails, others, image) + list(then), sparse_bytes)
        return change
    return add


def refused(words):
    return case(rw=words, ro=words)


# --- the header ---------------------------------------------------------------------------------

@refused("does not begin")
def magic(i):
    i.put32(0, 0x514649FA)


@refused("version 1")
def version_1(i):
    i.put32(4, 1)


@refused("version 4")
def version_4(i):
    i.put32(4, 4)


@refused(r"2\^8 bytes")
def clusters_small(i):
    i.put32(20, 8)


@refused(r"2\^63 bytes")
def clusters_giant(i):
    i.put32(20, 63)


@refused("L1 table has 1 entries")
def size_giant(i):
    i.put64(24, 1 << 62)


@refused("L1 table has 1 entries|size")
def size_most(i):
    i.put64(24, (1 << 64) - 1)


@refused("header says that it has 8 bytes")
def header_short(i):
    i.put32(100, 8)


@refused("header says that it has 4294967288 bytes")
def header_long(i):
    i.put32(100, 0xFFFFFFF8)


# what the file of an image lacks is zeroes
@refused("header says that it has 0 bytes")
def file_short(i):
    del i.bytes[80:]


@refused("old method of qcow2")
def crypt_aes(i):
    i.put32(32, 1)


@refused("method that ublkd does not know")
def crypt_unknown(i):
    i.put32(32, 77)


@refused(r"reference counts have 2\^7 bits")
def refcount_bits(i):
    i.put32(96, 7)


@refused("name of the backing file has 4294967295 bytes")
def backing_long(i):
    i.put64(8, 200)
    i.put32(16, 0xFFFFFFFF)


@refused("name of the backing file is at offset 18446744073709551615")
def backing_far(i):
    i.put64(8, (1 << 64) - 1)
    i.put32(16, 5)


# words, no bytes of the image as they are: a name may have anything in it
@refused("stands over")
def backing_of_itself(i):
    i.put64(8, 200)
    i.put32(16, 24)
    i.bytes[200:224] = b"backing_of_itself.qcow2\n"


@refused("extension")
def extension_long(i):
    i.put32(104, 0x12345678, 0xFFFFFFF0)


@refused("a strange thing")
def incompatible_named(i):
    i.put64(72, 1 << 40)
    i.extension(0x6803F857, bytes([0, 40]) + b"a strange thing".ljust(46, b"\0"))


@refused("41")
def incompatible_unnamed(i):
    i.put64(72, 1 << 41)


@refused("compression type is 1")
def compression_unmarked(i):
    i.put32(100, 112)
    i.bytes[104] = 1


@refused("does not know")
def compression_unknown(i):
    i.put64(72, 8)
    i.put32(100, 112)
    i.bytes[104] = 9


@refused("data in another file")
def data_file(i):
    i.put64(72, 4)


@refused("extended L2 entries need clusters")
def extended_small(i):
    i.put64(72, 16)
    i.put32(20, 13)


@case(rw="marked corrupt")
def corrupt_bit(i):
    i.put64(72, 2)


# --- tables -------------------------------------------------------------------------------------

@refused("L1 table is at offset .* beyond the end")
def l1_beyond(i):
    i.put64(40, 1 << 40)


@refused("L1 table is at offset .* not on the border")
def l1_unaligned(i):
    i.put64(40, L1 + 512)


@refused("lie over each other")
def l1_on_reftable(i):
    i.put64(40, REFTABLE)


@refused("where the header is")
def l1_on_header(i):
    i.put64(40, 0)


@refused("L1 table has 4294967295 entries")
def l1_too_large(i):
    i.put32(36, 0xFFFFFFFF)


# 32 MiB and 8 MiB of tables in a file that has next to nothing
@case(sparse_bytes=128 << 20)
def l1_giant(i):
    i.put32(36, 4 << 20)
    i.put64(24, (4 << 20) * (8192 * CLUSTER))
    i.put64(40, 16 << 20)


@case(sparse_bytes=128 << 20)
def reftable_giant(i):
    i.put32(56, 128)
    i.put64(48, 16 << 20)
    i.bytes.extend(bytes((16 << 20) + 8 - len(i.bytes)))
    i.put64(16 << 20, REFBLOCK)


@refused("reference count table has 129 clusters|reference count table has 0 clusters")
def reftable_too_large(i):
    i.put32(56, 129)


@refused("reference count table has 0 clusters")
def reftable_none(i):
    i.put32(56, 0)


@refused("reference count table is at offset .* beyond")
def reftable_beyond(i):
    i.put64(48, 1 << 55)


@refused("L2 table lies outside")
def l2_beyond(i):
    i.put64(L1, 1 << 40 | COPIED)


@refused("L2 table lies outside of it, or on another")
def l2_on_l1(i):
    i.put64(L1, L1 | COPIED)


@refused("L2 table lies outside of it, or on another")
def l2_on_reftable(i):
    i.put64(L1, REFTABLE | COPIED)


@refused("entry of its L1 table makes no sense")
def l2_unaligned(i):
    i.put64(L1, L2 + 512 | COPIED)


# thirteen counts of 1 are three entries and a part of one
@case(fails=range(4), others=False)
def l2_on_refblock(i):
    i.put64(L1, REFBLOCK | COPIED)


@case()
def l2_twice(i):
    i.put32(36, 2)
    i.put64(24, 2 * 8192 * CLUSTER)
    i.put64(L1 + 8, L2 | COPIED)


@case(rw="block of reference counts lies outside")
def refblock_beyond(i):
    i.put64(REFTABLE, 1 << 50)


@case(rw="block of reference counts lies outside of it, or on another")
def refblock_on_l1(i):
    i.put64(REFTABLE, L1)


@case(rw="block of reference counts")
def refblock_unaligned(i):
    i.put64(REFTABLE, REFBLOCK + 8)


# no table is used as two: a count is not changed in what a guest's cluster is found by
@case(then=["verify", "fails 2M 64k write", "verify"])
def refblock_on_l2(i):
    i.put64(REFTABLE, L2)


# --- counts that lie ----------------------------------------------------------------------------

@case()
def counts_zero(i):
    for cluster in range(len(i.bytes) // CLUSTER):
        i.count(cluster, 0)


@case()
def counts_most(i):
    for cluster in range(CLUSTER // 2):
        i.count(cluster, 0xFFFF)


@case(rw="nothing counts its header")
def counts_no_block(i):
    i.put64(REFTABLE, 0)


# --- entries of L2 ------------------------------------------------------------------------------

@case(fails=[0, 2, 3, 4, 5, 6])
def entries(i):
    i.entry(0, 1 << 45 | COPIED)  # beyond the end
    i.entry(2, L1 | COPIED)
    i.entry(3, REFTABLE | COPIED)
    i.entry(4, DATA + 512 | COPIED)
    i.entry(5, DATA | COPIED | 1 << 57)
    i.entry(6, DATA | COPIED | 1 << 3)


@case(fails=[0, 1, 3, 4])
def entries_compressed(i):
    i.entry(0, COMPRESSED | 1 << 45)  # beyond the end
    i.entry(1, COMPRESSED | DATA + 100)  # no stream
    i.entry(3, COMPRESSED | len(i.bytes) - 20 | 0xFF << 54)  # ends beyond the end
    i.entry(4, COMPRESSED | COPIED | DATA)
    i.put64(len(i.bytes) - CLUSTER, 0)


@case(fails=[0, 1, 2, 3], extended=True)
def entries_extended(i):
    i.entry(0, DATA | COPIED, 0x1_FFFFFFFF)  # data and zeroes
    i.entry(1, 0, 5)  # data without a cluster
    i.entry(2, DATA | COPIED | ZERO, 0xFFFFFFFF)
    i.entry(3, COMPRESSED | DATA, 1)


# two clusters of the guest in one of the image
@case()
def entries_shared(i):
    i.entry(1, DATA | COPIED)


# --- snapshots ----------------------------------------------------------------------------------

@refused("65537 internal snapshots")
def snapshots_many(i):
    i.put32(60, 65537)


@refused("table of snapshots is at offset .* beyond")
def snapshots_beyond(i):
    i.put32(60, 1)
    i.put64(64, 1 << 40)


@refused("lie over each other")
def snapshots_on_l1(i):
    i.put32(60, 1)
    i.put64(64, L1)


def snapshot(i, l1_offset, l1_entries, id_bytes, name_bytes, extra_bytes):
    at = len(i.bytes)
    i.bytes.extend(bytes(CLUSTER))
    i.count(at // CLUSTER, 1)
    i.put32(60, 1)
    i.put64(64, at)
    i.put64(at, l1_offset)
    i.put32(at + 8, l1_entries)
    struct.pack_into(">HH", i.bytes, at + 12, id_bytes, name_bytes)
    i.put32(at + 36, extra_bytes)


# what they say is not our matter as long as they are only kept, or the image is refused
@case(rw="snapshot|", ro="snapshot|")
def snapshot_l1_giant(i):
    snapshot(i, L1, 0xFFFFFFFF, 1, 1, 16)


@case(rw="snapshot|", ro="snapshot|")
def snapshot_extra_giant(i):
    snapshot(i, L1, 1, 65535, 65535, 0xFFFFFFFF)


@case(rw="snapshot|", ro="snapshot|")
def snapshot_l1_beyond(i):
    snapshot(i, 1 << 55, 1, 1, 1, 16)


# --- the files ----------------------------------------------------------------------------------

def write_case(name, folder):
    image, rw, ro, lines, sparse_bytes = CASES[name]
    path = os.path.join(folder, name)
    with open(path + ".qcow2", "wb") as f:
        f.write(image.bytes)
        f.truncate(max(len(image.bytes), sparse_bytes))
    with open(path + ".tree", "w") as f:
        f.write(f"type: qcow2\ndata: {{type: file, path: {name}.qcow2}}\n")
    with open(path + ".script", "w") as f:
        f.write("\n".join(lines + ["probe"]) + "\n")
    with open(path + ".want", "w") as f:
        f.write(f"rw {rw}\nro {ro}\n")


def write_named(folder):
    with open(os.path.join(folder, "want.raw"), "wb") as f:
        for n in range(DATA_NR):
            f.write(pattern(n))
        f.truncate(SIZE)
    for name in CASES:
        write_case(name, folder)


# --- any byte -----------------------------------------------------------------------------------

def tables_of(image):
    """Offset and length of what is metadata, as the header has it."""
    bits, = struct.unpack_from(">I", image, 20)
    l1_nr, l1, reftable, reftable_nr, snapshot_nr, snapshots = struct.unpack_from(">IQQIIQ", image, 36)
    cluster = 1 << bits
    ranges = [(0, 112), (112, min(cluster, 512) - 112), (l1, l1_nr * 8), (reftable, min(reftable_nr * cluster, 64))]
    for at, nr in ((l1, l1_nr), (reftable, 4)):
        for n in range(nr):
            table = struct.unpack_from(">Q", image, at + 8 * n)[0] & 0x00FFFFFFFFFFFE00
            if table:
                ranges.append((table, min(cluster, 2048)))
    if snapshot_nr:
        ranges.append((snapshots, 200))
    return ranges


def flip(image, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, nr = rng.choice(tables)
        at = min(at + rng.randrange(nr), len(image) - 1)
        how = rng.randrange(4)
        image[at] = (image[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255)[how]


def write_flips(folder, seed, number, paths):
    global tables
    for n in range(number):
        rng = random.Random(seed * 1000003 + n)
        with open(rng.choice(paths), "rb") as f:
            image = bytearray(f.read())
        tables = tables_of(image)
        flip(image, rng)
        name = os.path.join(folder, f"flip{n}")
        with open(name + ".qcow2", "wb") as f:
            f.write(image)
        with open(name + ".tree", "w") as f:
            f.write(f"type: qcow2\ncache: 64KiB\nbacking: none\ndata: {{type: file, path: {name}.qcow2}}\n")


def main(args):
    if args[0] == "named":
        write_named(args[1])
    else:
        write_flips(args[1], int(args[2]), int(args[3]), args[4:])


main(sys.argv[1:])
