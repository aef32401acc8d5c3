"""Checks metrics against their text format, as strictly as a scraper may read it: Prometheus 0.0.4, or OpenMetrics 1.0
with --openmetrics. Without a file it checks itself: texts with one fault each, which it must refuse.
Usage: exposition.py [--openmetrics] [FILE]"""
import math
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|Inf)|NaN")
TYPES = {"counter", "gauge", "histogram"}


class Wrong(Exception):
    pass


def need(true, words):
    if not true:
        raise Wrong(words)


class Family:
    def __init__(self, name):
        self.name, self.type, self.help, self.series, self.buckets, self.counts = name, None, None, set(), {}, {}


class Reader:
    def __init__(self, openmetrics):
        self.openmetrics, self.families, self.family, self.ended = openmetrics, {}, None, False

    def types(self):
        return TYPES | {"info"} if self.openmetrics else TYPES

    def enter(self, name):
        """The lines of a family stand together: its name comes once."""
        if not self.family or self.family.name != name:
            need(name not in self.families, f"{name} is there twice, with others between")
            self.family = self.families[name] = Family(name)
        return self.family

    def comment(self, line):
        match = re.fullmatch(r"# (TYPE|HELP) (\S+) (.+)", line)
        need(match, "a comment that is no TYPE, HELP or EOF")
        kind, name, text = match.groups()
        need(NAME.fullmatch(name), f"no name: {name}")
        family = self.enter(name)
        need(not family.series, f"{kind} behind the series of {name}")
        if kind == "TYPE":
            need(family.type is None, "a second TYPE")
            need(text in self.types(), f"no type: {text}")
            need(self.openmetrics or text != "counter" or name.endswith("_total"), "a counter without _total")
            need(not self.openmetrics or not name.endswith(("_total", "_info")), "a suffix in the name of a family")
            family.type = text
        else:
            need(family.help is None, "a second HELP")
            need(re.fullmatch(r'([^\\"]|\\[\\"n])*' if self.openmetrics else r"([^\\]|\\[\\n])*", text), "HELP is not escaped")
            family.help = text

    def suffixes(self):
        """What may follow the name of the family."""
        return {"histogram": ("_bucket", "_sum", "_count"), "info": ("_info",),
                "counter": ("_total",) if self.openmetrics else ("",)}.get(self.family.type, ("",))

    def labels(self, text):
        """The labels that text begins with, and what follows them."""
        found = {}
        if not text.startswith("{"):
            return found, text
        at = 1
        while True:
            match = LABEL.match(text, at)
            need(match, f"no label: {text[at:]}")
            need(match[1] not in found, f"label {match[1]} twice")
            found[match[1]] = match[2]
            at = match.end()
            need(text[at:at + 1] in (",", "}"), f"behind a label: {text[at:]}")
            if text[at] == "}":
                return found, text[at + 1:]
            at += 1

    def sample(self, line):
        name = NAME.match(line)
        need(name and self.family, "a line that belongs to no family")
        name = name[0]
        need(name in [self.family.name + suffix for suffix in self.suffixes()], f"{name} in the family {self.family.name}")
        need(self.family.type and self.family.help, f"{self.family.name} without TYPE or HELP")
        labels, rest = self.labels(line[len(name):])
        need(rest.startswith(" ") and NUMBER.fullmatch(rest[1:]), f"no value: {rest}")
        series = (name, tuple(sorted(labels.items())))
        need(series not in self.family.series, "the same series twice")
        self.family.series.add(series)
        value = float(rest[1:])
        need(self.family.type in ("gauge", "info") or value >= 0, "a counter below zero")
        if self.family.type == "histogram":
            self.histogram(name, labels, value)

    def histogram(self, name, labels, value):
        others = tuple(sorted(item for item in labels.items() if item[0] != "le"))
        if name.endswith("_bucket"):
            need(NUMBER.fullmatch(labels.get("le", "")), "a bucket without le")
            self.family.buckets.setdefault(others, []).append((float(labels["le"]), value))
        elif name.endswith("_count"):
            self.family.counts[others] = value

    def line(self, line):
        need(not self.ended, "behind # EOF")
        if self.openmetrics and line == "# EOF":
            self.ended = True
        elif line.startswith("#"):
            self.comment(line)
        else:
            self.sample(line)

    def end(self):
        need(self.ended or not self.openmetrics, "no # EOF")
        for family in self.families.values():
            need(set(family.buckets) == set(family.counts), f"{family.name}: buckets without a count")
            for labels, buckets in family.buckets.items():
                need(all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(buckets, buckets[1:])), f"{family.name}: buckets out of order")
                need(buckets[-1] == (math.inf, family.counts[labels]), f"{family.name}: +Inf is not the count")


def check(data, openmetrics=False):
    """What is wrong with it, or None."""
    reader, number = Reader(openmetrics), 0
    try:
        text = data.decode()  # refuses what is no UTF-8
        need(text.endswith("\n"), "the last line has no end")
        for number, line in enumerate(text[:-1].split("\n"), 1):
            reader.line(line)
        reader.end()
    except (Wrong, UnicodeDecodeError) as error:
        return f"line {number}: {error}"
    return None


GOOD = b"""# TYPE a_total counter
# HELP a_total Some "help" \\\\ and \\n.
a_total{x="1",y="\\\\ \\" \\n \xe6\xbc\xa2"} 1
a_total 2.5
# TYPE h histogram
# HELP h H.
h_bucket{d="a",le="0.1"} 1
h_bucket{d="a",le="+Inf"} 3
h_sum{d="a"} 0.5
h_count{d="a"} 3
"""
# What stands in GOOD, and what must not stand in its place.
FAULTS = [
    (b'x="1"', b'x="1'), (b'x="1"', b'x="a"b"'), (b'x="1"', b'x="a\\b"'), (b'x="1"', b'x="a\nb"'), (b'x="1"', b"x=1"),
    (b'x="1"', b'1="1"'), (b'x="1"', b'y="1"'), (b'y="', b'y="\xff'), (b'y="', b'y="\xed\xa0\x80'), (b'{x="1",', b'{,x="1",'),
    (b"a_total 2.5", b"a_total 2.5x"), (b"a_total 2.5", b"a_total"), (b"a_total 2.5", b"a_total 2.5\na_total 2.5"),
    (b"a_total 2.5", b"b_total 2.5"), (b"a_total 2.5", b""), (b"a_total 2.5", b"a_total -1"), (b'\\\\ and', b"\\ and"),
    (b"# HELP a_total", b"# HLEP a_total"), (b"# TYPE a_total counter", b"# TYPE a_total number"),
    (b"a_total", b"a"), (b"# HELP h H.\n", b""), (b"# TYPE h histogram\n", b""), (b"# TYPE h ", b"# TYPE a_total "),
    (b'le="0.1"} 1', b'le="0.1"} 4'), (b'le="0.1"} 1\n', b'} 1\n'), (b"h_count{d=\"a\"} 3", b"h_count{d=\"a\"} 4"),
    (b'h_count{d="a"} 3\n', b""), (b'h_bucket{d="a",le="+Inf"} 3\n', b""), (b'} 3\n', b'} 3'),
    (b'h_count{d="a"} 3\n', b'h_count{d="a"} 3\na_total{z="2"} 1\n'), (b"# HELP h H.", b"# HELP h H.\n# HELP h H."),
]
OPEN = b'# TYPE a counter\n# HELP a A \\"b\\".\na_total 1\n# TYPE b info\n# HELP b B.\nb_info{v="1"} 1\n# EOF\n'
OPEN_FAULTS = [(b"# EOF\n", b""), (b"# EOF\n", b"# EOF\n\n"), (b'A \\"b\\"', b'A "b"'), (b"a_total 1", b"a 1"), (b"b_info", b"b"),
               (b"a counter", b"a_total counter"), (b" a ", b" a_total ")]


def check_itself():
    wrong = [f"refused: {check(GOOD)}"] if check(GOOD) else []
    wrong += [f"refused: {check(OPEN, True)}"] if check(OPEN, True) else []
    for text, faults, openmetrics in ((GOOD, FAULTS, False), (OPEN, OPEN_FAULTS, True)):
        for old, new in faults:
            bad = text.replace(old, new)
            if bad == text or not check(bad, openmetrics):
                wrong.append(f"taken: {new!r} in the place of {old!r}")
    return "\n".join(wrong)


def main(arguments):
    files = [word for word in arguments if word != "--openmetrics"]
    if files:
        with open(files[0], "rb") as file:
            wrong = check(file.read(), "--openmetrics" in arguments)
    else:
        wrong = check_itself()
    if wrong:
        print(wrong)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
