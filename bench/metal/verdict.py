"""From rows to medians, verdicts, a table and a plot. Pure: test/bench/metal.py tries it on made-up rows."""
import statistics

from systems import BOUNDS

MEASURES = ["iops", "p50_us", "p99_us", "p999_us", "cpu_s_per_mio", "switches_per_io", "cache_misses_per_io"]
# Fewer say nothing about their spread.
ROUNDS_MIN = 3


class Cell:
    """All rounds of one system under one load."""

    def __init__(self, rows):
        self.rows = rows

    def values(self, measure):
        return [row[measure] for row in self.rows if row[measure] is not None]

    def median(self, measure):
        values = self.values(measure)
        return statistics.median(values) if values else None

    def spread(self):
        """Of the IOPS: between the lowest and the highest, as a part of the median."""
        values = self.values("iops")
        return (max(values) - min(values)) / self.median("iops")


def cells_of(rows):
    """{(family, jobs, rw, bs, qd): {system: Cell}}, in the order of the rows."""
    cells = {}
    for row in rows:
        load = (row["family"], row["jobs"], row["rw"], row["bs"], row["qd"])
        cells.setdefault(load, {}).setdefault(row["system"], []).append(row)
    return {load: {name: Cell(of) for name, of in systems.items()} for load, systems in cells.items()}


def best_rival(systems):
    """The name of the one with the highest median; None: there is none."""
    rivals = [name for name in systems if not name.startswith("ublkd-") and name not in BOUNDS]
    return max(rivals, key=lambda name: systems[name].median("iops"), default=None)


def verdict(ours, rival):
    """Of two cells: "faster", "slower", "equal within the spread", "too few rounds". The rounds of the two are interleaved,
    so a difference counts only where all of the one are beyond all of the other."""
    if min(len(ours.rows), len(rival.rows)) < ROUNDS_MIN:
        return "too few rounds"
    if min(ours.values("iops")) > max(rival.values("iops")):
        return "faster"
    if max(ours.values("iops")) < min(rival.values("iops")):
        return "slower"
    return "equal within the spread"


def verdicts(cells):
    """A dict for each load that has a device of ublkd and a rival."""
    found = []
    for load, systems in cells.items():
        ours = next((name for name in systems if name.startswith("ublkd-")), None)
        rival = best_rival(systems)
        if not ours or not rival:
            continue
        found.append({
            "family": load[0], "jobs": load[1], "rw": load[2], "bs": load[3], "qd": load[4], "system": ours, "rival": rival,
            "ratio": systems[ours].median("iops") / systems[rival].median("iops"),
            "cpu_ratio": systems[ours].median("cpu_s_per_mio") / systems[rival].median("cpu_s_per_mio")
            if systems[rival].median("cpu_s_per_mio") else None,
            "verdict": verdict(systems[ours], systems[rival]),
        })
    return found


# ---- the table ----


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def load_words(load):
    _, jobs, rw, bs, qd = load
    return f"{bs} {rw.removeprefix('rand')} QD{qd}, {jobs} job{'s' if jobs > 1 else ''}"


def table(rows, refused):
    cells = cells_of(rows)
    judged = {(v["family"], v["jobs"], v["rw"], v["bs"], v["qd"]): v for v in verdicts(cells)}
    lines = ["| load | system | IOPS | spread | p50 us | p99 us | p99.9 us | CPU s per million I/Os | switches per I/O | "
             "cache misses per I/O | beside the best rival |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for load, systems in cells.items():
        for name, cell in systems.items():
            said = ""
            if load in judged and judged[load]["system"] == name:
                v = judged[load]
                said = f"{v['verdict']} ({v['ratio']:.2f} of {v['rival']})"
            values = [number(cell.median(m)) for m in MEASURES]
            lines.append("| " + " | ".join([load_words(load), name, values[0], f"{cell.spread() * 100:.0f}%", *values[1:], said]) + " |")
    for name, why in sorted(refused.items()):
        lines.append(f"\n{name} is not measured: {why}")
    return "\n".join(lines) + "\n"


# ---- the plot: IOPS of each load as parts of the best rival's ----

LINE_HEIGHT, LEFT, WIDTH, RIGHT = 22, 330, 420, 230
COLORS = {"faster": "#2a7f3f", "slower": "#b03030"}


def plot(rows):
    """SVG: a line for each verdict, the spread of ours around its median; 1 is the best rival."""
    cells = cells_of(rows)
    lines = verdicts(cells)
    top = max([v["ratio"] for v in lines] + [1.2]) * 1.15
    height = LINE_HEIGHT * (len(lines) + 2)

    def x_of(ratio):
        return LEFT + WIDTH * min(ratio, top) / top

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + RIGHT}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<line x1="{x_of(1):.1f}" y1="0" x2="{x_of(1):.1f}" y2="{height}" stroke="#888"/>',
             f'<text x="{x_of(1) + 4:.1f}" y="{height - 6}" fill="#555">the best rival</text>']
    for i, v in enumerate(lines):
        load = (v["family"], v["jobs"], v["rw"], v["bs"], v["qd"])
        rival = cells[load][v["rival"]].median("iops")
        values = [value / rival for value in cells[load][v["system"]].values("iops")]
        y = LINE_HEIGHT * (i + 1)
        color = COLORS.get(v["verdict"], "#777")
        parts += [f'<text x="4" y="{y + 4}">{v["family"]}: {load_words(load)}</text>',
                  f'<line x1="{x_of(min(values)):.1f}" y1="{y}" x2="{x_of(max(values)):.1f}" y2="{y}" stroke="{color}" '
                  'stroke-width="3"/>',
                  f'<circle cx="{x_of(v["ratio"]):.1f}" cy="{y}" r="4" fill="{color}"/>',
                  f'<text x="{LEFT + WIDTH + 6}" y="{y + 4}">{v["ratio"]:.2f} of {v["rival"]}, {v["verdict"]}</text>']
    return "\n".join(parts + ["</svg>"]) + "\n"
