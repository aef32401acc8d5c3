#!/usr/bin/env python3
"""Strict reader of the Perfetto traces that ublktrace writes, with a protobuf decoder of its own.
Usage: perfetto_read.py FILE.pftrace[.gz] [--json | --dump]"""

import gzip
import struct
import sys

from trace_model import Model, Slice, tell


class Broken(Exception):
    pass


def varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Broken(f"varint at {at}")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, wire type, value) of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            if at + 8 > len(data):
                raise Broken(f"fixed64 at {at} is cut")
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise Broken(f"field {number} of {size} bytes at {at} is cut")
            value, at = data[at:at + size], at + size
        else:
            raise Broken(f"wire type {kind} at {at}")
        yield number, kind, value


# number: (name, wire type, may come again), from the public .proto files
PACKET = {6: ("clocks", 2, 0), 8: ("time", 0, 0), 10: ("sequence", 0, 0), 11: ("event", 2, 0),
          12: ("interned", 2, 0), 13: ("flags", 0, 0), 60: ("track", 2, 0)}
CLOCKS = {1: ("clock", 2, 1)}
CLOCK = {1: ("id", 0, 0), 2: ("time", 0, 0)}
TRACK = {1: ("uuid", 0, 0), 2: ("name", 2, 0), 3: ("process", 2, 0), 5: ("parent", 0, 0), 8: ("counter", 2, 0),
         15: ("merge", 0, 0)}
PROCESS = {1: ("pid", 0, 0), 6: ("name", 2, 0)}
EVENT = {4: ("args", 2, 1), 9: ("kind", 0, 0), 10: ("name", 0, 0), 11: ("track", 0, 0), 30: ("value", 0, 0),
         47: ("flows", 1, 1), 48: ("flow_ends", 1, 1)}
ARG = {1: ("name", 0, 0), 3: ("unsigned", 0, 0), 4: ("number", 0, 0), 17: ("text", 0, 0)}
INTERNED = {2: ("names", 2, 1), 3: ("arg_names", 2, 1), 29: ("texts", 2, 1)}
TEXT = {1: ("iid", 0, 0), 2: ("text", 2, 0)}

BEGIN, END, COUNTER = 1, 2, 4
NEEDS_STATE = 2
NO_MERGE = 2


def message(data, schema):
    out = {name: [] for name, _, again in schema.values() if again}
    for number, kind, value in fields(data):
        if number not in schema or schema[number][1] != kind:
            raise Broken(f"field {number} of wire type {kind} is not known here")
        name, _, again = schema[number]
        if again:
            out[name].append(value)
        elif name in out:
            raise Broken(f"{name} twice")
        else:
            out[name] = value
    return out


def signed(value):
    return value - (1 << 64) if value >> 63 else value


class Reader:
    def __init__(self):
        self.model = Model()
        self.tables = {"names": {}, "arg_names": {}, "texts": {}}
        self.open = {}  # track: slices that have not ended
        self.counters = {}  # uuid: (process, name)
        self.last = {}  # track: time of its last event
        self.packets = 0

    def packet(self, data):
        p = message(data, PACKET)
        self.packets += 1
        if p.get("sequence") != 1:
            self.model.error("a packet without its sequence")
        if (self.packets == 1) != (p.get("flags") == 1):
            self.model.error(f"packet {self.packets} has flags {p.get('flags')}")
        for table, entries in message(p.get("interned", b""), INTERNED).items():
            for entry in entries:
                text = message(entry, TEXT)
                if text["iid"] in self.tables[table] or not text["iid"]:
                    self.model.error(f"{table} {text['iid']} is told twice")
                self.tables[table][text["iid"]] = text.get("text", b"").decode("utf-8")
        if "clocks" in p:
            self.clocks(message(p["clocks"], CLOCKS))
        if "track" in p:
            self.track(message(p["track"], TRACK))
        if "event" in p:
            if not p["flags"] & NEEDS_STATE:
                self.model.error("an event that does not say that it needs the interned texts")
            self.event(p["time"], message(p["event"], EVENT))

    def clocks(self, snapshot):
        clocks = [message(c, CLOCK) for c in snapshot["clock"]]
        self.model.facts["clocks"] = {c["id"]: c["time"] for c in clocks}

    def track(self, t):
        if "process" in t:
            self.model.processes[t["uuid"]] = message(t["process"], PROCESS)["name"].decode("utf-8")
        elif t["uuid"] in self.counters:
            self.model.error(f"counter {t['uuid']} is told twice")
        elif "counter" in t:
            self.counters[t["uuid"]] = (t["parent"], t["name"].decode("utf-8"))
        else:
            if t.get("merge") != NO_MERGE:
                self.model.error(f"track {t['uuid']} would keep its first name, and be merged with others")
            self.model.track(t["uuid"], t["parent"], t["name"].decode("utf-8"))

    def event(self, time, e):
        if time < self.last.get(e["track"], 0):
            self.model.error(f"packet {self.packets}: track {e['track']} goes back in time")
        self.last[e["track"]] = time
        if e["kind"] == BEGIN:
            self.begin(time, e)
        elif e["kind"] == END:
            stack = self.open.get(e["track"])
            if not stack:
                self.model.error(f"an end on track {e['track']} without a begin")
            else:
                stack.pop().end = time
        elif e["kind"] == COUNTER:
            self.model.counters[self.counters[e["track"]]].append((time, signed(e["value"])))
        else:
            self.model.error(f"event of type {e['kind']}")

    def begin(self, time, e):
        args = {}
        for a in (message(a, ARG) for a in e["args"]):
            value = self.tables["texts"][a["text"]] if "text" in a else a.get("unsigned")
            args[self.tables["arg_names"][a["name"]]] = signed(a["number"]) if value is None else value
        if len(args) != len(e["args"]):
            self.model.error("an argument twice")
        s = Slice(e["track"], time, -1, self.tables["names"][e["name"]], args)
        s.flows_out, s.flows_in = e["flows"], e["flow_ends"]
        self.open.setdefault(e["track"], []).append(s)
        self.model.slices.append(s)


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        data = file.read()
    reader = Reader()
    try:
        for number, kind, value in fields(data):
            if (number, kind) != (1, 2):
                raise Broken(f"field {number} between packets")
            reader.packet(value)
    except (Broken, KeyError, UnicodeDecodeError) as e:
        reader.model.error(f"packet {reader.packets}: {e!r}")
    for track, stack in reader.open.items():
        for s in stack:
            reader.model.error(f"'{s.name}' on track {track} does not end")
    reader.model.facts["packets"] = reader.packets
    return reader.model


if __name__ == "__main__":
    sys.exit(tell(read(sys.argv[1]), sys.argv[2:]))
