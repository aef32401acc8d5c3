"""What a trace file says, whatever its format, and the rules that it has to keep. The readers
(perfetto_read.py, fxt_read.py) fill a Model; draw.py draws one."""

import collections
import json
import sys


class Slice:
    __slots__ = ("track", "start", "end", "name", "args", "flows_in", "flows_out")

    def __init__(self, track, start, end, name, args):
        self.track, self.start, self.end, self.name, self.args = track, start, end, name, args
        self.flows_in, self.flows_out = [], []


class Model:
    def __init__(self):
        self.processes = {}  # id: name
        self.tracks = {}  # id: (process, name)
        self.counters = collections.defaultdict(list)  # (process, name): [(time, value)]
        self.slices = []  # in the order of the file
        self.errors = []  # what the reader itself found
        self.facts = {}  # numbers of the format, for whoever asks

    def error(self, text):
        if len(self.errors) < 50:
            self.errors.append(text)

    def track(self, number, process, name):
        """Told again when it has another name."""
        if self.tracks.get(number, (process,))[0] != process:
            self.error(f"track {number} changes its process")
        if self.tracks.get(number) == (process, name):
            self.error(f"track {number} is told twice")
        self.tracks[number] = (process, name)

    # --- the rules: each returns what breaks it ---

    def known_tracks(self):
        bad = [f"slice {s.name} on unknown track {s.track}" for s in self.slices if s.track not in self.tracks]
        bad += [f"track {name} of unknown process {p}" for p, name in self.tracks.values() if p not in self.processes]
        return bad

    def sane_times(self):
        bad = [f"{s.name}: {s.start}..{s.end}" for s in self.slices if not 0 <= s.start < s.end]
        if self.slices:
            first, last = min(s.start for s in self.slices), max(s.end for s in self.slices)
            if last - first > 86400 * 10**9:
                bad.append(f"the trace lasts {(last - first) / 1e9} s")
        return bad

    def nesting(self):
        """Sorted by start on each track, the outer first, none cuts another."""
        bad, stacks, last = [], collections.defaultdict(list), {}
        for s in self.slices:
            stack = stacks[s.track]
            if s.start < last.get(s.track, 0):
                bad.append(f"{self.where(s)} starts at {s.start}, after one that starts at {last[s.track]}")
            last[s.track] = s.start
            while stack and stack[-1].end <= s.start:
                stack.pop()
            if stack and s.end > stack[-1].end:
                bad.append(f"{self.where(s)} {s.start}..{s.end} cuts {stack[-1].name} that ends {stack[-1].end}")
            stack.append(s)
        return bad

    def flows(self):
        """Each begins once, ends once, and later: trace_processor takes events in the order of their
        times, and drops an arrow whose end comes first."""
        begins, ends, bad = {}, {}, []
        for s in self.slices:
            for table, ids in ((begins, s.flows_out), (ends, s.flows_in)):
                for flow in ids:
                    if flow in table:
                        bad.append(f"flow {flow} twice: {self.where(table[flow])}, {self.where(s)}")
                    table[flow] = s
        for flow in begins.keys() - ends.keys():
            bad.append(f"flow {flow} from {self.where(begins[flow])} ends nowhere")
        for flow in ends.keys() - begins.keys():
            bad.append(f"flow {flow} to {self.where(ends[flow])} begins nowhere")
        for flow in begins.keys() & ends.keys():
            if begins[flow].start >= ends[flow].start:
                bad.append(f"flow {flow} goes back from {self.where(begins[flow])} to {self.where(ends[flow])}")
        self.facts["flows"] = len(begins)
        return bad

    def sorted_counters(self):
        return [f"counter {key} goes back" for key, points in self.counters.items()
                if any(a[0] > b[0] for a, b in zip(points, points[1:]))]

    def limits(self):
        bad = [f"{self.where(s)} has {len(s.args)} arguments" for s in self.slices if len(s.args) > 15]
        names = [s.name for s in self.slices] + list(self.processes.values()) + [n for _, n in self.tracks.values()]
        bad += [f"a name of {len(n)} characters" for n in names if len(n) >= 1 << 15]
        bad += [f"{self.where(s)} has user_data {s.args['user_data']}" for s in self.slices
                if not 0 <= s.args.get("user_data", 0) < 1 << 64]
        bad += [f"{self.where(s)} has an empty text" for s in self.slices if "" in s.args.values()]
        bad += ["an empty name" for n in names if not n]
        bad += [f"unprintable name {n!r}" for n in set(names) if not n.isprintable()]
        return bad

    def where(self, s):
        process, name = self.tracks.get(s.track, (0, "?"))
        return f"'{s.name}' on '{self.processes.get(process, '?')}/{name}'"

    def summary(self):
        names = collections.Counter(s.name for s in self.slices)
        lost = {name: points[-1][1] for (_, name), points in self.counters.items() if name.startswith("lost: ")}
        return {
            "processes": sorted(self.processes.values()),
            "tracks": len(self.tracks),
            "slices": len(self.slices),
            "first_ns": min((s.start for s in self.slices), default=0),
            "last_ns": max((s.end for s in self.slices), default=0),
            "names": dict(names.most_common()),
            "links": dict(self.links().most_common()),
            "lost": lost,
            **self.facts,
        }

    def links(self):
        """How often an arrow goes from one kind of track to another, in words without numbers."""
        begins = {flow: s for s in self.slices for flow in s.flows_out}
        pairs = collections.Counter()
        for s in self.slices:
            for flow in s.flows_in:
                if flow in begins:
                    pairs[f"{self.kind(begins[flow])} -> {self.kind(s)}"] += 1
        return pairs

    def kind(self, s):
        process, name = self.tracks[s.track]
        if self.processes[process].startswith("ublkb"):
            return f"ublk {s.name}" if s.name in ("queued", "reap", "daemon", "commit") else "ublk request"
        return name.split()[0] if self.processes[process].startswith("ring ") else "thread"

    def dump(self):
        return {
            "processes": self.processes,
            "tracks": self.tracks,
            "slices": [[s.track, s.start, s.end, s.name, s.args, s.flows_in, s.flows_out] for s in self.slices],
        }


def tell(model, arguments):
    """TAP of all rules; with --json the summary, with --dump everything. Returns the exit code."""
    if "--dump" in arguments:
        json.dump(model.dump(), sys.stdout)
        return 0
    rules = [
        ("it can be read by its own rules", lambda: model.errors),
        ("tracks and processes are told", model.known_tracks),
        ("times are sane", model.sane_times),
        ("slices nest, sorted", model.nesting),
        ("flows have both ends, in slices", model.flows),
        ("counters are sorted", model.sorted_counters),
        ("names and arguments keep the limits", model.limits),
    ]
    failed, lines = 0, []
    for number, (name, rule) in enumerate(rules, 1):
        bad = rule()
        failed += bool(bad)
        lines.append(f"{'not ' if bad else ''}ok {number} - {name}")
        lines += [f"# {text}" for text in bad[:5]]
    if "--json" in arguments:
        json.dump({"ok": not failed, **model.summary()}, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(lines + [f"1..{len(rules)}"]))
    return failed > 0
