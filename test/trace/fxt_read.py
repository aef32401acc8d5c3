#!/usr/bin/env python3
"""Strict reader of the Fuchsia traces (FXT) that ublktrace writes.
Usage: fxt_read.py FILE.fxt[.gz] [--json | --dump]"""

import gzip
import struct
import sys

from trace_model import Model, Slice, tell

MAGIC = 0x0016547846040010
INIT, STRING, THREAD, EVENT, OBJECT = 1, 2, 3, 4, 7
COUNTER, COMPLETE, FLOW_BEGIN, FLOW_END = 1, 4, 8, 10
# Bits of the first word: docs/reference/tracing/trace-format.md of Fuchsia.
RESERVED = {INIT: (16, 64), STRING: (31, 32, 47, 64), THREAD: (24, 64), OBJECT: (44, 64)}


class Broken(Exception):
    pass


def unused(head, *bits):
    """Reserved bits are zero. bits: first, behind the last, in turn."""
    for first, end in zip(bits[::2], bits[1::2]):
        if head >> first & (1 << end - first) - 1:
            raise Broken(f"bits {first} to {end - 1} of {head:#x} are reserved")


class Words:
    """The words of a record after the first, taken one by one."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def word(self):
        if self.at + 8 > len(self.data):
            raise Broken("a record is too short")
        self.at += 8
        return struct.unpack_from("<Q", self.data, self.at - 8)[0]

    def text(self, size):
        padded = (size + 7) & ~7
        if self.at + padded > len(self.data):
            raise Broken("a text is cut")
        text = self.data[self.at:self.at + padded]
        self.at += padded
        if any(text[size:]):
            raise Broken("padding that is not zero")
        return text[:size].decode("utf-8")

    def end(self):
        if self.at != len(self.data):
            raise Broken(f"{len(self.data) - self.at} bytes are left in a record")


def signed(value):
    return value - (1 << 64) if value >> 63 else value


class Reader:
    def __init__(self):
        self.model = Model()
        self.strings, self.threads = {}, {}
        self.last = {}  # thread: the slices that may be open
        self.records = self.inline_threads = self.inline_strings = 0
        self.ticks = 0

    def string(self, ref, words):
        if ref == 0:
            return ""
        if ref & 0x8000:
            self.inline_strings += 1
            return words.text(ref & 0x7FFF)
        if ref not in self.strings:
            raise Broken(f"string {ref} was not told")
        return self.strings[ref]

    def argument(self, words):
        start, head = words.at, words.word()
        name = self.string(head >> 16 & 0xFFFF, words)
        kind = head & 15
        unused(head, 48 if kind == 6 else 32, 64)
        if kind == 6:
            value = self.string(head >> 32 & 0xFFFF, words)
        elif kind == 3:
            value = signed(words.word())
        elif kind in (4, 8):
            value = words.word()
        else:
            raise Broken(f"argument of type {kind}")
        if words.at - start != (head >> 4 & 0xFFF) * 8:
            raise Broken(f"argument {name} says {head >> 4 & 0xFFF} words")
        return name, value

    def arguments(self, nr, words):
        args = dict(self.argument(words) for _ in range(nr))
        if len(args) != nr:
            raise Broken("an argument twice")
        return args

    def record(self, head, words):
        kind = head & 15
        self.records += 1
        unused(head, *RESERVED.get(kind, ()))
        if kind == INIT:
            self.ticks = words.word()
        elif kind == STRING:
            index, size = head >> 16 & 0x7FFF, head >> 32 & 0x7FFF
            if index == 0 or index in self.strings:
                raise Broken(f"string {index} is told twice")
            self.strings[index] = words.text(size)
        elif kind == THREAD:
            index = head >> 16 & 0xFF
            if index == 0 or index in self.threads:
                raise Broken(f"thread {index} is told twice")
            self.threads[index] = (words.word(), words.word())
        elif kind == OBJECT:
            self.object(head, words)
        elif kind == EVENT:
            self.event(head, words)
        else:
            raise Broken(f"record of type {kind}")
        words.end()

    def object(self, head, words):
        kind, koid = head >> 16 & 0xFF, words.word()
        name = self.string(head >> 24 & 0xFFFF, words)
        args = self.arguments(head >> 40 & 15, words)
        if kind == 1:
            self.model.processes[koid] = name
        elif kind == 2:
            self.model.track(koid, args["process"], name)
        else:
            raise Broken(f"object of type {kind}")

    def event(self, head, words):
        if not self.ticks:
            raise Broken("an event before the clock is told")
        time, ref = words.word() * 10**9 // self.ticks, head >> 24 & 0xFF
        if ref == 0:
            self.inline_threads += 1
            process, track = words.word(), words.word()
        elif ref in self.threads:
            process, track = self.threads[ref]
        else:
            raise Broken(f"thread {ref} was not told")
        self.string(head >> 32 & 0xFFFF, words)
        name = self.string(head >> 48 & 0xFFFF, words)
        args = self.arguments(head >> 20 & 15, words)
        kind, last = head >> 16 & 15, words.word()
        if kind == COUNTER:
            self.model.counters[process, name].append((time, args["value"]))
            return
        if self.model.tracks.get(track, (0,))[0] != process:
            raise Broken(f"thread {track} is not of process {process}")
        if kind == COMPLETE:
            s = Slice(track, time, last * 10**9 // self.ticks, name, args)
            self.model.slices.append(s)
            self.last[track] = s
        elif kind in (FLOW_BEGIN, FLOW_END):
            self.flow(time, track, kind, last)
        else:
            raise Broken(f"event of type {kind}")

    def flow(self, time, track, kind, flow):
        """It belongs to the slice that its thread has open then; ours is the last one told."""
        s = self.last.get(track)
        if not s or not s.start <= time < s.end:
            self.model.error(f"flow {flow} lies in no open slice of thread {track}")
            return
        (s.flows_out if kind == FLOW_BEGIN else s.flows_in).append(flow)


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    reader, at = Reader(), 8
    try:
        if len(data) % 8 or data[:8] != struct.pack("<Q", MAGIC):
            raise Broken("not of whole words, or without the magic number")
        while at < len(data):
            head = struct.unpack_from("<Q", data, at)[0]
            size = (head >> 4 & 0xFFF) * 8
            if size == 0 or at + size > len(data):
                raise Broken(f"a record of {size} bytes at {at}")
            reader.record(head, Words(data[at + 8:at + size]))
            at += size
    except (Broken, KeyError, UnicodeDecodeError) as e:
        reader.model.error(f"record {reader.records} at {at}: {e!r}")
    reader.model.facts.update(records=reader.records, thread_refs=len(reader.threads),
                              inline_threads=reader.inline_threads, inline_strings=reader.inline_strings)
    return reader.model


if __name__ == "__main__":
    sys.exit(tell(read(sys.argv[1]), sys.argv[2:]))
