"""Does a line bend? The lines, their rules, and what a measured line says. Pure: test/bench/scale.py tries it on made-up
costs. Costs are instructions per I/O."""


class Flat:
    """At no number does an I/O cost more than at the first one, but for a part of it."""

    def __init__(self, percent, since=1):
        self.percent, self.since = percent, since

    def words(self):
        return f"at most {self.percent:g}% over the cost at {self.since}"

    def breaks(self, costs):
        """costs: {number: cost}. [(number, sentence)]; None: what it is compared with was not measured."""
        if self.since not in costs or max(costs) == self.since:
            return None
        base = costs[self.since]
        return [(number, f"{cost:,}, {(cost / base - 1) * 100:.1f}% over the {base:,} at {self.since}; {self.percent:g}% are allowed")
                for number, cost in costs.items() if number > self.since and cost > base * (1 + self.percent / 100)]


class First:
    """The first of a kind may cost so many instructions more than none."""

    def __init__(self, instructions, before, after):
        self.instructions, self.before, self.after = instructions, before, after

    def words(self):
        return f"{self.after} at most {self.instructions:,} over {self.before}"

    def breaks(self, costs):
        if self.before not in costs or self.after not in costs:
            return None
        step = costs[self.after] - costs[self.before]
        if step <= self.instructions:
            return []
        return [(self.after, f"{costs[self.after]:,}, {step:,} over the {costs[self.before]:,} at {self.before}; "
                             f"{self.instructions:,} are allowed")]


class Straight:
    """At no number does an I/O cost more than the line up to there leads to, but for a part of it. A straight line passes,
    however steep."""

    def __init__(self, percent):
        self.percent = percent

    def words(self):
        return f"at most {self.percent:g}% over the line before"

    def breaks(self, costs):
        numbers = sorted(costs)
        if len(numbers) < 3:
            return None
        found, begin = [], numbers[0]
        for before, number in zip(numbers[1:], numbers[2:]):
            mean = (costs[before] - costs[begin]) / (before - begin)
            expected = costs[before] + mean * (number - before)
            if costs[number] > expected * (1 + self.percent / 100):
                found.append((number, f"{costs[number]:,}, {(costs[number] / expected - 1) * 100:.1f}% over the {expected:,.0f} "
                                      f"that steps of {mean:,.0f} lead to; {self.percent:g}% are allowed"))
        return found


class Line:
    """What is counted, the numbers of it that are measured, and the rules of each queue depth."""

    def __init__(self, words, numbers, quick, rules):
        self.words, self.numbers, self.quick, self.rules = words, numbers, quick, rules


# At depth 1 a cell repeats to 0.2%, deeper to 0.5 to 2%; three instructions for each of 512 devices in a turn are 5 to 10%.
LINES = {
    "devices": Line("devices, I/O on one", (1, 16, 128, 512), (1, 128), {1: [Flat(1)], 32: [Flat(2)]}),
    "spread": Line("devices, I/O on all", (1, 16, 128, 512), (1, 128), {1: [Flat(1)], 32: [Flat(3)]}),
    "stripe": Line("children of a stripe", (1, 2, 4, 8), (1, 2, 8),
                   {1: [First(600, 1, 2), Flat(1, since=2)], 32: [First(600, 1, 2), Flat(2, since=2)]}),
    "filters": Line("filters in a row", (0, 1, 2, 3, 4, 16), (0, 1, 4, 16),
                    {1: [First(800, 0, 1), Straight(1)], 32: [First(600, 0, 1), Straight(2)]}),
    # Requests in flight share a system call only with those of their connection: at most, each of 32 has its own. How many do
    # with 16 connections differs between runs.
    "nbd": Line("NBD connections", (1, 4, 16, 64), (1, 16, 64), {1: [Flat(4)], 32: [First(30000, 1, 16), First(30000, 1, 64)]}),
}


class Measured:
    """One line at one queue depth: rows are dicts with number, cost (None: not measured), ios, runtime_ms, note."""

    def __init__(self, name, depth, rows):
        self.name, self.depth, self.rows = name, depth, rows
        self.costs = {row["number"]: row["cost"] for row in rows if row["cost"] is not None}
        self.rules = LINES[name].rules[depth]

    def breaks(self):
        """[(number, sentence)]"""
        found = []
        for rule in self.rules:
            found += (rule.breaks(self.costs) if self.costs else None) or []
        return found

    def missing(self):
        """[(number, reason)]"""
        return [(row["number"], row["note"]) for row in self.rows if row["cost"] is None]

    def is_judged(self):
        return bool(self.costs) and any(rule.breaks(self.costs) is not None for rule in self.rules)

    def verdict(self):
        for words, cells in (("bends at", self.breaks()), ("not measured at", self.missing())):
            if cells:
                return f"{words} " + ", ".join(str(number) for number in dict.fromkeys(number for number, _ in cells))
        return "holds" if self.is_judged() else "not judged"

    def rule(self):
        return "; ".join(rule.words() for rule in self.rules)


def measured(rows):
    """[Measured] in the order of LINES. rows: dicts with line and depth, too."""
    found = []
    for name, line in LINES.items():
        for depth in line.rules:
            of = sorted((row for row in rows if (row["line"], row["depth"]) == (name, depth)), key=lambda row: row["number"])
            if of:
                found.append(Measured(name, depth, of))
    return found


def sentences(lines):
    """What makes the run fail: the line, the cell and why."""
    found = []
    for line in lines:
        for words, cells in (("BENDS", line.breaks()), ("NOT MEASURED", line.missing())):
            found += [f"{words}: {line.name} {number} at depth {line.depth}: {why}" for number, why in cells]
    return found


def table(lines):
    columns = max(len(line.rows) for line in lines)
    text = ["| 4k random reads | depth |" + " |" * columns + " verdict | rule |", "|---|---|" + "---|" * (columns + 2)]
    for line in lines:
        cells = [f"{row['number']}: {'-' if row['cost'] is None else format(row['cost'], ',')}" for row in line.rows]
        cells += [""] * (columns - len(cells))
        text.append(f"| {LINES[line.name].words} | {line.depth} | {' | '.join(cells)} | {line.verdict()} | {line.rule()} |")
    return "\n".join(text) + "\n"
