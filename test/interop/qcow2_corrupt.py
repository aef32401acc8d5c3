#!/usr/bin/env python3
"""Breaks one field of a qcow2 image at a time: qemu-img check and the oracle must think alike of it.

usage: qcow2_corrupt.py QCOW2_CHECK SEED NUMBER IMAGE [QEMU_IMG_OPTIONS...]
       qcow2_corrupt.py QCOW2_CHECK strict IMAGE

NUMBER images are made of IMAGE, each with one change from SEED. The options stand before the image's name
in a call of qemu-img, {} in them is the name. Prints what was found and exits with 1 when the two
contradict each other without one of the reasons in EXCUSES. strict: each change of STRICT that can be done
to the image; the oracle must see what qemu-img does not look for.
"""
import concurrent.futures
import json
import os
import random
import re
import struct
import subprocess
import sys
from collections import Counter

OFFSET = 0x00FFFFFFFFFFFE00
COPIED, COMPRESSED = 1 << 63, 1 << 62

# Where both may differ, and why. Each is (words, condition); the condition has the change and both answers.
EXCUSES = []


def excuse(words):
    def add(condition):
        EXCUSES.append((words, condition))
        return condition
    return add


@excuse("the format forbids COPIED without a cluster (but in a data file); qemu-img does not look")
def copied_alone(case):
    return case.oracle.only("COPIED, and no cluster")


@excuse("the format has no zero flag in version 2 and with subclusters; qemu-img ignores the bit")
def zero_flag(case):
    return case.oracle.only("a zero flag where there is none") and (case.image.version == 2 or case.image.extended)


@excuse("the format calls the feature bit of bitmaps without their extension an error; qemu-img ignores the bit")
def bitmaps_missing(case):
    return case.oracle.only("bitmaps, but no extension says where")


@excuse("qemu-img wants a key of an image that is encrypted by AES")
def aes(case):
    return case.field.note == "crypt" and "encrypt.key-secret" in case.qemu.words


@excuse("the format wants each cluster of a data file at the guest's offset; qemu-img does not look")
def elsewhere(case):
    return case.image.data_file and case.oracle.only("not where the guest's cluster is in the data file")


@excuse("one cluster as data and as compressed data, with the right reference count: no writer can mean that")
def two_kinds(case):
    return case.oracle.corruptions == case.oracle.faults.get("overlap") and "data, and" in case.oracle.words


@excuse("the format wants a header length that is a multiple of 8; qemu-img does not look")
def header_length(case):
    return case.field.note == "header_length" and case.value % 8


@excuse("qemu-img takes an encryption header of 2^63 bytes and more for none")
def crypto_length(case):
    return case.field.note == "crypto_length" and case.value >> 63


@excuse("qemu-img takes no more than 1024 bytes of extra data of a snapshot")
def snapshot_extra(case):
    return "Too much extra metadata in snapshot table entry" in case.qemu.words


@excuse("an image need not name its data file; qemu-img is not told of another one")
def data_file_name(case):
    return "'data-file' is required for this image" in case.qemu.words


@excuse("the oracle does not read the LUKS header, qemu-img finds it longer than the image says")
def luks_header(case):
    return case.field.note == "crypto_length" and "Request for data outside of extension header" in case.qemu.words


# ---- the image ----


class Field:
    """Some bytes of the image: big endian, or bits of a byte for small reference counts."""

    def __init__(self, kind, offset, bytes_nr, note=""):
        self.kind, self.offset, self.bytes_nr, self.note = kind, offset, bytes_nr, note

    def get(self, data):
        return int.from_bytes(data[self.offset:self.offset + self.bytes_nr], "big")

    def set(self, data, value):
        data[self.offset:self.offset + self.bytes_nr] = value.to_bytes(self.bytes_nr, "big")


HEADER = [("cluster_bits", 20, 4), ("size", 24, 8), ("crypt", 32, 4), ("l1_size", 36, 4), ("l1_offset", 40, 8),
          ("reftable_offset", 48, 8), ("reftable_clusters", 56, 4), ("nb_snapshots", 60, 4), ("snapshots_offset", 64, 8)]
HEADER_3 = [("incompatible", 72, 8), ("compatible", 80, 8), ("autoclear", 88, 8), ("refcount_order", 96, 4),
            ("header_length", 100, 4), ("compression", 104, 1)]


class Image:
    def __init__(self, data):
        self.data, self.fields = data, {}
        self.version, = struct.unpack_from(">I", data, 4)
        bits, = struct.unpack_from(">I", data, 20)
        self.cluster = 1 << bits
        self.l1_size, self.l1, self.reftable, self.reftable_clusters, self.snapshot_nr, self.snapshots = \
            struct.unpack_from(">IQQIIQ", data, 36)
        self.incompatible = self.u64(72) if self.version > 2 else 0
        self.order = struct.unpack_from(">I", data, 96)[0] if self.version > 2 else 4
        self.extended, self.data_file = bool(self.incompatible & 16), bool(self.incompatible & 4)
        for name, offset, nr in HEADER + (HEADER_3 if self.version > 2 else []):
            self.add("header", offset, nr, name)
        self.tables()
        self.extensions()

    def u64(self, offset):
        return int.from_bytes(self.data[offset:offset + 8], "big")

    def add(self, kind, offset, nr, note=""):
        if offset + nr <= len(self.data):
            self.fields.setdefault(kind, []).append(Field(kind, offset, nr, note))

    def l1_table(self, kind, offset, entries):
        step = 16 if self.extended else 8
        for i in range(entries):
            self.add(f"{kind}L1", offset + i * 8, 8)
            l2 = self.u64(offset + i * 8) & OFFSET
            for entry in range(l2, l2 + self.cluster if l2 else l2, step):
                # most are empty: of these a few are enough
                if any(self.data[entry:entry + step]) or random.random() < .02:
                    self.add(f"{kind}L2", entry, 8)
                    if self.extended:
                        self.add(f"{kind}L2 bitmap", entry + 8, 8)

    def tables(self):
        self.l1_table("", self.l1, self.l1_size)
        for i in range(self.reftable_clusters * self.cluster // 8):
            block = self.u64(self.reftable + i * 8)
            if block or i < 4:
                self.add("reftable", self.reftable + i * 8, 8)
            used = (-(-len(self.data) // self.cluster) << self.order) // 8 + 1
            for at in range(0, min(used, self.cluster) if block else 0, max(1, (1 << self.order) // 8)):
                self.add("refcount", block + at, max(1, (1 << self.order) // 8))
        at = self.snapshots
        for _ in range(self.snapshot_nr):
            self.add("snapshot", at, 8, "l1_offset")
            self.add("snapshot", at + 8, 4, "l1_size")
            for note, offset in (("id_size", 12), ("name_size", 14)):
                self.add("snapshot", at + offset, 2, note)
            self.add("snapshot", at + 36, 4, "extra_size")
            self.l1_table("snapshot ", self.u64(at), struct.unpack_from(">I", self.data, at + 8)[0])
            at += (40 + sum(struct.unpack_from(">HH20xI", self.data, at + 12)) + 7) // 8 * 8

    def extensions(self):
        at = struct.unpack_from(">I", self.data, 100)[0] if self.version > 2 else 72
        while True:
            kind, nr = struct.unpack_from(">II", self.data, at)
            if kind == 0:
                break
            if kind == 0x23852875:
                self.add("extension", at + 8, 4, "nb_bitmaps")
                self.add("extension", at + 16, 8, "bitmap_directory_size")
                self.add("extension", at + 24, 8, "bitmap_directory_offset")
                self.bitmaps(struct.unpack_from(">I", self.data, at + 8)[0], self.u64(at + 24))
            if kind == 0x0537BE77:
                self.add("extension", at + 8, 8, "crypto_offset")
                self.add("extension", at + 16, 8, "crypto_length")
            at += 8 + (nr + 7) // 8 * 8

    def bitmaps(self, bitmap_nr, at):
        for _ in range(bitmap_nr):
            for note, offset, nr in (("table_offset", 0, 8), ("table_size", 8, 4), ("flags", 12, 4), ("type", 16, 1),
                                     ("granularity", 17, 1), ("name_size", 18, 2), ("extra_size", 20, 4)):
                self.add("bitmap", at + offset, nr, note)
            table, entries = struct.unpack_from(">QI", self.data, at)
            for i in range(entries):
                self.add("bitmap table", table + i * 8, 8)
            at += (24 + sum(struct.unpack_from(">HI", self.data, at + 18)) + 7) // 8 * 8


# ---- one change ----


def changed(image, field, rng):
    """Another value of the field: a bit flipped, or what a broken program would write."""
    old, bits = field.get(image.data), field.bytes_nr * 8
    clusters = len(image.data) // image.cluster
    somewhere = rng.randrange(clusters + 2) * image.cluster
    other = rng.choice(image.fields[field.kind]).get(image.data)
    ways = [old ^ 1 << rng.randrange(bits), old ^ 1 << rng.randrange(min(bits, 10)), old ^ 1 << bits - 1 - rng.randrange(min(bits, 4)),
            0, other, old + 1, old - 1, rng.randrange(1 << bits)]
    if bits == 64 and field.kind not in ("header", "refcount", "L2 bitmap", "snapshot L2 bitmap"):
        ways += [old & ~OFFSET | somewhere, old & ~OFFSET | somewhere, COPIED | somewhere, COPIED | somewhere, old + 512,
                 old ^ COPIED, old ^ COMPRESSED]
    elif field.kind.endswith("L2 bitmap"):
        # a subcluster that is allocated and reads as zeroes
        ways += [old | old >> 32 | 1, old | old << 32 | 1 << 32, 1 << 32 | 1, old | 1]
    elif bits == 64:
        ways += [somewhere, somewhere]
    if field.kind == "bitmap table":
        ways += [old | 1, somewhere | 1]
    return rng.choice(ways) % (1 << bits)


def change(image, rng):
    """A field and its new value, which is not the old one."""
    kinds = sorted(image.fields)
    while True:
        field = rng.choice(image.fields[rng.choice(kinds)])
        value = changed(image, field, rng)
        if value != field.get(image.data):
            return field, value


# ---- both opinions ----


class Opinion:
    def __init__(self, refused, corruptions, leaks, words, faults=None):
        self.refused, self.corruptions, self.leaks, self.words, self.faults = refused, corruptions, leaks, words, faults or {}

    def bad(self):
        return bool(self.refused or self.corruptions)

    def only(self, words):
        """All faults that the oracle sees, or the first ones of many, are of this kind."""
        told = re.findall(r"^- .*", self.words, re.M)
        return bool(self.corruptions and told) and all(words in line for line in told)

    def __str__(self):
        return "refused" if self.refused else f"{self.corruptions} corruptions, {self.leaks} leaks"


def qemu_opinion(name, options):
    run = subprocess.run(["qemu-img", "check", "--output=json", *[o.replace("{}", name) for o in options]],
                         capture_output=True, timeout=100, check=False)
    try:
        said = json.loads(run.stdout)
    except ValueError:
        said = {}
    words = run.stderr.decode(errors="replace")
    if run.returncode not in (0, 1, 2, 3):
        words += f"\nexit code {run.returncode}"
    # what it could not check is no opinion of its own
    refused = run.returncode not in (0, 2, 3) and not said.get("corruptions")
    return Opinion(refused, said.get("corruptions", 0), said.get("leaks", 0), words)


def oracle_opinion(program, name):
    run = subprocess.run([program, "check", name], capture_output=True, timeout=100, check=False)
    out, err = run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace")
    if run.returncode not in (0, 1, 2, 3) or (run.returncode == 1 and "qcow2_check: " not in err):
        sys.exit(f"{program} {name}: exit code {run.returncode}\n{err}")
    said = {key: int(nr) for key, nr in re.findall(r"(\w+) (\d+)", out.split("\n-")[0])}
    return Opinion(run.returncode == 1, said.get("corruptions", 0) + said.get("repairable", 0), said.get("leaks", 0),
                   out + err, said)


class Case:
    def __init__(self, image, field, value, qemu, oracle):
        self.image, self.field, self.value, self.qemu, self.oracle = image, field, value, qemu, oracle

    def differs(self):
        # how many clusters are lost is of interest only where nothing is broken
        return self.qemu.bad() != self.oracle.bad() or \
            (not (self.qemu.refused or self.oracle.refused) and self.qemu.leaks != self.oracle.leaks)

    def __str__(self):
        f = self.field
        return (f"{f.kind} {f.note} at {f.offset:#x}: {f.get(self.image.data):#x} -> {self.value:#x}\n"
                f"    qemu-img: {self.qemu}\n      {self.qemu.words[:400]}\n    oracle: {self.oracle}\n      {self.oracle.words[:400]}")


def judge(program, image, image_name, options, nr, rng_seed):
    rng = random.Random(rng_seed)
    field, value = change(image, rng)
    data = bytearray(image.data)
    field.set(data, value)
    # beside the image: it may name others
    name = f"{image_name}.{nr}"
    with open(name, "wb") as file:
        file.write(data)
    case = Case(image, field, value, qemu_opinion(name, options), oracle_opinion(program, name))
    os.unlink(name)
    return case


# ---- where the oracle is the stricter one ----


def entry(image, value):
    return value & OFFSET and not value & COMPRESSED


# KIND of field or its note, which one of them, the new value, what the oracle must say.
STRICT = [
    ("L2", lambda image, v: not v and not image.data_file, lambda image, v: COPIED, "COPIED, and no cluster"),
    ("L2", lambda image, v: not v and (image.version == 2 or image.extended), lambda image, v: 1,
     "a zero flag where there is none"),
    ("L2", lambda image, v: image.data_file and entry(image, v), lambda image, v: v + image.cluster,
     "not where the guest's cluster is in the data file"),
    ("L2", lambda image, v: image.snapshot_nr and entry(image, v) and not v & COPIED, lambda image, v: v | COMPRESSED,
     "data, and "),
    ("L2", lambda image, v: entry(image, v) and not image.data_file,
     lambda image, v: next(f.get(image.data) for f in image.fields["L2"] if entry(image, f.get(image.data)) not in (0, v & OFFSET)),
     r"shared [1-9]"),
    ("autoclear", lambda image, v: not v, lambda image, v: 1, "bitmaps, but no extension says where"),
    ("header_length", lambda image, v: True, lambda image, v: v + 1, "not a multiple of 8"),
    # qemu-img sees this too, but chance rarely makes it
    ("bitmap table", entry, lambda image, v: v | 1, r"bitmap \d+, entry"),
    # the last one is behind the end of the file
    ("refcount", lambda image, v: not v and image.order >= 3, lambda image, v: 1, r"past_end [1-9]"),
]


def strict(program, image_name):
    with open(image_name, "rb") as file:
        image = Image(bytearray(file.read()))
    wrong = 0
    for kind, condition, new_value, words in STRICT:
        fields = [f for kinds in image.fields.values() for f in kinds
                  if kind in (f.kind, f.note) and condition(image, f.get(image.data))]
        if not fields:
            continue
        data, name = bytearray(image.data), f"{image_name}.strict"
        fields[-1].set(data, new_value(image, fields[-1].get(image.data)))
        with open(name, "wb") as file:
            file.write(data)
        oracle = oracle_opinion(program, name)
        seen = bool(re.search(words, oracle.words))
        wrong += not seen
        print(f"{'seen' if seen else 'NOT SEEN'}: {words}", "" if seen else oracle.words)
        os.unlink(name)
    return 1 if wrong else 0


def main():
    if sys.argv[2] == "strict":
        return strict(sys.argv[1], sys.argv[3])
    program, seed, number, image_name, *options = sys.argv[1:]
    random.seed(int(seed))
    with open(image_name, "rb") as file:
        image = Image(bytearray(file.read()))
    excused, wrong = Counter(), []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(judge, program, image, image_name, options or ["{}"], nr, f"{seed} {nr}")
                for nr in range(int(number))]
        cases = [job.result() for job in jobs]
    for case in cases:
        if case.differs():
            words = next((words for words, condition in EXCUSES if condition(case)), None)
            if words:
                excused[words] += 1
            else:
                wrong.append(case)
    broken = sum(case.qemu.bad() for case in cases)
    leaky = sum(not case.qemu.bad() and bool(case.qemu.leaks) for case in cases)
    kinds = Counter(case.field.kind for case in cases)
    print(f"{os.path.basename(image_name)}: {len(cases)} changes, {broken} break the image, {leaky} lose clusters;",
          ", ".join(f"{kind} {nr}" for kind, nr in sorted(kinds.items())))
    for words, nr in excused.items():
        print(f"  {nr} excused: {words}")
    for case in wrong:
        print(f"  {case}")
    # an image that nothing breaks, or everything, was not looked at
    return 1 if wrong or broken in (0, len(cases)) else 0


if __name__ == "__main__":
    sys.exit(main())
