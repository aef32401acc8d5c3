#!/usr/bin/env python3
"""Reports a result of bench.sh: table, plot, JSON, comparison with the committed result.

  report.py make RESULT.csv FOLDER              write table.md, plot.svg and result.json to FOLDER
  report.py compare RESULT.csv RESULTS          exit 1 and name the cells when cells of ublkd grew
                                                by more than 2% over RESULTS/VERSION.csv
  report.py commit RESULT.csv RESULTS DOC.md    copy it to RESULTS, update the table in DOC.md

A cell is one system in one mode at one kind of load; its value is instructions per I/O, or None with
a reason. Only Python's standard library is used.
"""

import csv
import json
import os
import sys

LIMIT = 1.02  # runs repeat to about 0.2%
OURS = "ublkd-"
FAMILIES = [
    # system of ublkd, its rivals, the lower bound
    ("ublkd-null", ["kublk-null"], "null_blk"),
    ("ublkd-file", ["loop", "kublk-loop"], "file"),
    ("ublkd-stripe", ["kublk-stripe"], None),
    ("ublkd-nbd-unix", ["nbd-ko-unix"], "nbd-floor-unix"),
    ("ublkd-nbd-tcp", ["nbd-ko-tcp"], "nbd-floor-tcp"),
    ("ublkd-nvme", ["nvme-tcp"], None),
    ("ublkd-nvme-digest", ["nvme-tcp-digest"], None),
    ("ublkd-rbd", ["rbd-kernel", "rbd-nbd"], "rbd-fio"),
    ("ublkd-http", ["nbdkit-curl"], None),
    ("ublkd-http-cache", ["nbdkit-curl-cache"], None),
] + [
    ("ublkd" + image, [server + image for server in ("qemu-nbd", "qsd-vduse", "qsd-fuse")], None)
    for image in ("-qcow2", "-qcow2-alloc", "-qcow2-backing")
]
# Without a rival.
FAMILIES_ALONE = [("ublkd-shared", [], None), ("ublkd-mem", [], None), ("ublkd-mem-fragmented", [], None)] + [
    (f"ublkd-{backend}", [], None)
    for backend in ("null-shmem", "null-huge", "mem-tmpfs", "mem-shmem", "mem-huge", "mem-shmem-huge", "file-tmpfs", "file-shmem",
                    "file-huge", "file-shmem-huge", "nbd-unix-tmpfs", "nbd-unix-shmem")
]
LABELS = {
    "null_blk": "null_blk: no server",
    "file": "the file, without a block device",
    "loop": "file: kernel loop device, direct I/O",
    "kublk-null": "null: kublk, best mode per cell",
    "kublk-loop": "file: kublk, best mode per cell",
    "kublk-stripe": "stripe of four files: kublk, best mode per cell",
    "ublkd-null": "null: ublkd",
    "ublkd-file": "file: ublkd",
    "ublkd-stripe": "stripe of four files: ublkd",
    "ublkd-shared": "file, shared by devices: ublkd",
    "ublkd-mem": "mem: ublkd",
    "ublkd-mem-fragmented": "mem, each other page absent: ublkd",
    "ublkd-null-shmem": "null, client's memory shared: ublkd",
    "ublkd-null-huge": "null, client's memory in huge pages: ublkd",
    "ublkd-nbd-unix-shmem": "NBD, unix socket, client's memory shared: ublkd",
    "ublkd-nbd-unix-tmpfs": "NBD, unix socket, client's memory in tmpfs: ublkd",
    "ublkd-mem-tmpfs": "mem, client's memory in tmpfs: ublkd",
    "ublkd-mem-huge": "mem, client's memory in huge pages: ublkd",
    "ublkd-file-tmpfs": "file, client's memory in tmpfs: ublkd",
    "ublkd-file-huge": "file, client's memory in huge pages: ublkd",
    "ublkd-mem-shmem": "mem, client's memory shared: ublkd",
    "ublkd-mem-shmem-huge": "mem, client's huge pages shared: ublkd",
    "ublkd-file-shmem": "file, client's memory shared: ublkd",
    "ublkd-file-shmem-huge": "file, client's huge pages shared: ublkd",
    "nbd-floor-unix": "NBD, unix socket: server and minimal client, without a block device",
    "nbd-floor-tcp": "NBD, TCP: server and minimal client, without a block device",
    "nbd-ko-unix": "NBD, unix socket: kernel nbd.ko",
    "nbd-ko-tcp": "NBD, TCP: kernel nbd.ko",
    "ublkd-nbd-unix": "NBD, unix socket: ublkd",
    "ublkd-nbd-tcp": "NBD, TCP: ublkd",
    "rbd-kernel": "Ceph RBD: kernel rbd",
    "rbd-nbd": "Ceph RBD: rbd-nbd",
    "rbd-fio": "Ceph RBD: fio's engine, no block device",
    "ublkd-rbd": "Ceph RBD: ublkd",
    "nbdkit-curl": "http: nbdkit's curl plugin, kernel nbd.ko",
    "ublkd-http": "http: ublkd",
    "nbdkit-curl-cache": "http with a cache: nbdkit's curl plugin and cache filter, kernel nbd.ko",
    "ublkd-http-cache": "http with a cache: ublkd",
    "nvme-tcp": "NVMe/TCP: kernel nvme-tcp",
    "nvme-tcp-digest": "NVMe/TCP with digests: kernel nvme-tcp",
    "ublkd-nvme": "NVMe/TCP: ublkd",
    "ublkd-nvme-digest": "NVMe/TCP with digests: ublkd",
}
for _image, _words in (
    ("-qcow2", "qcow2"),
    ("-qcow2-alloc", "qcow2, new clusters"),
    ("-qcow2-backing", "qcow2, from the backing image"),
):
    LABELS["ublkd" + _image] = f"{_words}: ublkd"
    LABELS["qemu-nbd" + _image] = f"{_words}: qemu-nbd, kernel nbd.ko"
    LABELS["qsd-vduse" + _image] = f"{_words}: qemu-storage-daemon, vduse"
    LABELS["qsd-fuse" + _image] = f"{_words}: qemu-storage-daemon, FUSE, loop device"
SIZES = ["4k", "64k", "1M"]
COLUMNS = ["system", "mode", "rw", "bs", "qd", "instructions_per_io", "ios", "runtime_ms", "note"]


class Error(Exception):
    """An error for the user; the program exits with 2."""


class Result:
    """One run: its conditions, and value and note per (system, mode, rw, bs, qd)."""

    def __init__(self, path):
        self.path = path
        self.meta = {}
        self.values = {}
        self.notes = {}
        with open(path, newline="", encoding="utf-8") as file:
            lines = file.read().splitlines()
        for line in lines:
            if line.startswith("# "):
                key, _, value = line[2:].partition(" ")
                self.meta[key] = value
        self.read_rows([line for line in lines if line and not line.startswith("#")])

    def read_rows(self, lines):
        reader = csv.DictReader(lines)
        if reader.fieldnames != COLUMNS:
            raise Error(f"{self.path}: the columns are not {','.join(COLUMNS)}")
        for row in reader:
            cell = (row["system"], row["mode"], row["rw"], row["bs"], int(row["qd"]))
            value = row["instructions_per_io"]
            self.values[cell] = None if value == "-" else int(value)
            self.notes[cell] = row["note"]
        if not self.values:
            raise Error(f"{self.path}: no cell was measured")

    @property
    def version(self):
        try:
            return self.meta["kernel"].split()[0]
        except (KeyError, IndexError):
            raise Error(f'{self.path}: no line "# kernel VERSION"') from None

    def loads(self):
        """All (rw, bs, qd) that occur, in the order of the tables."""
        loads = {cell[2:] for cell in self.values}
        return sorted(loads, key=lambda load: (SIZES.index(load[1]), load[0], load[2]))

    def modes(self, system):
        return list(dict.fromkeys(cell[1] for cell in self.values if cell[0] == system))

    def best(self, systems, load):
        """The lowest value of these systems in any mode and its cell, or (None, None)."""
        found = [
            (value, cell)
            for cell, value in self.values.items()
            if cell[0] in systems and cell[2:] == load and value is not None
        ]
        return min(found, default=(None, None))


# --- the table ------------------------------------------------------------------------------------


def heading(load):
    # "read": from one end to the other, of what nobody has read before
    name = "cold read" if load[0] == "read" else load[0].removeprefix("rand")
    return f"{name} QD{load[2]}"


def number(value):
    return "-" if value is None else f"{value:,}"


def with_ratio(value, rival):
    if value is None or rival is None:
        return number(value)
    return f"{value:,} ({value / rival:.2f})"


def line(label, cells):
    return "| " + " | ".join([label] + cells) + " |"


def family_lines(result, family, loads):
    ours, rivals, floor = family
    lines = []
    for system in ([floor] if floor else []) + rivals:
        values = [result.best([system], load)[0] for load in loads] if result.modes(system) else []
        if any(value is not None for value in values):
            lines.append(line(LABELS[system], [number(value) for value in values]))
    for mode in result.modes(ours):
        values = [result.values.get((ours, mode) + load) for load in loads]
        if any(value is not None for value in values):
            cells = [with_ratio(v, result.best(rivals, load)[0]) for v, load in zip(values, loads)]
            name = f"{LABELS[ours]}, {mode}"
            lines.append(line(f"**{name}**" if mode == "auto" else name, cells))
    return lines


def size_table(result, size):
    loads = [load for load in result.loads() if load[1] == size]
    if not loads:
        return []
    lines = []
    for family in FAMILIES + FAMILIES_ALONE:
        lines += family_lines(result, family, loads)
    if not lines:
        return []
    return [line(size, [heading(load) for load in loads]), "|---" * (len(loads) + 1) + "|"] + lines + [""]


def score(result):
    """How often the mode auto of ublkd is at or below the best rival: (won, of)."""
    won = total = 0
    for ours, rivals, _ in FAMILIES:
        for load in result.loads():
            value, rival = result.values.get((ours, "auto") + load), result.best(rivals, load)[0]
            if value is not None and rival is not None:
                total += 1
                won += value <= rival
    return won, total


def rival_modes(result):
    """The best mode of kublk for each cell."""
    lines = []
    for system in ("kublk-null", "kublk-loop", "kublk-stripe"):
        wins = {}
        for load in result.loads():
            cell = result.best([system], load)[1]
            if cell:
                wins.setdefault(cell[1], []).append(f"{load[1]} {heading(load)}")
        if wins:
            lines.append(f"- {system}: " + "; ".join(f"{m} in {', '.join(w)}" for m, w in wins.items()))
    return ["Best modes of kublk:", ""] + lines + [""] if lines else []


def missing(result):
    """The cells without a value: one line per system, mode and reason."""
    reasons = {}
    for cell, value in result.values.items():
        if value is None:
            reasons.setdefault((cell[0], cell[1], result.notes[cell]), []).append(cell[2:])
    if not reasons:
        return []
    lines = ["Not measured:", ""]
    for (system, mode, note), loads in reasons.items():
        all_loads = [cell for cell in result.values if cell[:2] == (system, mode)]
        where = "" if len(loads) == len(all_loads) else f" ({', '.join(f'{l[1]} {heading(l)}' for l in loads)})"
        lines.append(f"- {system}, {mode}{where}: {note}")
    return lines + [""]


def table(result):
    meta = result.meta
    won, total = score(result)
    lines = [
        f"Instructions per I/O, Linux {result.version}; in brackets the ratio to the best rival of that cell.",
    ]
    if total:
        lines.append(f"The default mode of ublkd (auto) is at or below the best rival in {won} of {total} cells.")
    lines.append("")
    for size in SIZES:
        lines += size_table(result, size)
    lines += rival_modes(result) + missing(result)
    told = [f"{key} {meta[key]}" for key in ("kernel", "fio", "compiler", "rivals", "seconds") if key in meta]
    return "\n".join(lines + ["Made with " + ", ".join(told) + ".", ""])


def as_json(result):
    cells = []
    rivals_of = {ours: rivals for ours, rivals, _ in FAMILIES}
    for cell, value in result.values.items():
        rival = result.best(rivals_of.get(cell[0], []), cell[2:])[0]
        cells.append(
            dict(zip(("system", "mode", "rw", "bs", "qd"), cell))
            | {"instructions_per_io": value, "note": result.notes[cell], "best_rival": rival}
            | {"ratio": round(value / rival, 4) if value and rival else None}
        )
    won, total = score(result)
    return {"meta": result.meta, "auto_at_or_below_best_rival": won, "of": total, "cells": cells}


# --- the plot -------------------------------------------------------------------------------------

SERIES = [
    # name, colour, systems of the null family, of the file family, mode or any
    ("floor: no server", "#b8b8b8", ["null_blk"], ["file"], None),
    ("kernel loop device", "#7a9cc6", [], ["loop"], None),
    ("kublk, best mode", "#e0a458", ["kublk-null"], ["kublk-loop"], None),
    ("ublkd, auto", "#2a7f62", ["ublkd-null"], ["ublkd-file"], "auto"),
]
PANEL_HEIGHT, GROUP_WIDTH, BAR_WIDTH, LEFT, TOP = 190, 110, 24, 60, 60


def bars(result, family, load):
    for _, colour, null_systems, file_systems, mode in SERIES:
        systems = (null_systems, file_systems)[family]
        value = result.best(systems, load)[0]
        if mode and systems:
            value = result.values.get((systems[0], mode) + load)
        if value is not None:
            yield colour, value


def short(value):
    return f"{value / 1000:.1f}k" if value < 100000 else f"{value / 1000:.0f}k"


def text(x, y, what, size=11, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{extra}>{what}</text>'


def panel(result, family, size, left, top):
    """One family at one I/O size, on one scale; returns its shapes and its width."""
    loads = [load for load in result.loads() if load[1] == size]
    groups = [(load, list(bars(result, family, load))) for load in loads]
    highest = max((value for _, group in groups for _, value in group), default=0)
    if not highest:
        return [], 0
    bottom = top + PANEL_HEIGHT
    width = GROUP_WIDTH * len(groups)
    shapes = [text(left + width / 2, top - 24, f"{('null', 'file')[family]}, {size}", 13, extra=' font-weight="bold"')]
    shapes.append(f'<line x1="{left}" y1="{bottom}" x2="{left + width}" y2="{bottom}" stroke="#444"/>')
    for index, (load, group) in enumerate(groups):
        x = left + index * GROUP_WIDTH + (GROUP_WIDTH - BAR_WIDTH * len(group)) / 2
        shapes.append(text(left + (index + 0.5) * GROUP_WIDTH, bottom + 16, heading(load)))
        for colour, value in group:
            height = value / highest * PANEL_HEIGHT
            shapes.append(
                f'<rect x="{x:.1f}" y="{bottom - height:.1f}" width="{BAR_WIDTH - 2}" '
                f'height="{height:.1f}" fill="{colour}"/>'
            )
            shapes.append(text(x + (BAR_WIDTH - 2) / 2, bottom - height - 4, short(value), 8))
            x += BAR_WIDTH
    return shapes, width


def plot(result):
    shapes, width, y = [], 560, TOP + 50
    for family in range(2):
        x, any_panel = LEFT, False
        for size in SIZES:
            drawn, panel_width = panel(result, family, size, x, y)
            shapes += drawn
            if drawn:
                any_panel = True
                x += panel_width + 40
        width = max(width, x + 20)
        y += PANEL_HEIGHT + 80 if any_panel else 0
    x = LEFT
    for name, colour, *_ in SERIES:
        shapes.append(f'<rect x="{x}" y="{TOP - 22}" width="12" height="12" fill="{colour}"/>')
        shapes.append(text(x + 17, TOP - 12, name, anchor="start"))
        x += 135
    title = f"Instructions per I/O, Linux {result.version}: less is better; each panel has its own scale"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
            f'viewBox="0 0 {width} {y}" font-family="sans-serif">',
            f'<rect width="{width}" height="{y}" fill="#fff"/>',
            text(LEFT, 24, title, 14, "start"),
            *shapes,
            "</svg>",
            "",
        ]
    )


# --- comparing and committing ---------------------------------------------------------------------


def name_of(cell):
    return f"{cell[0]} {cell[1]} {cell[2]} {cell[3]} QD{cell[4]}"


def regressions(new, old):
    """The regressions as sentences. Cells that are not in the new result do not count."""
    found = []
    for cell, before in old.values.items():
        if not cell[0].startswith(OURS) or before is None or cell not in new.values:
            continue
        now = new.values[cell]
        if now is None:
            found.append(f"{name_of(cell)}: {before:,} before, now not measured: {new.notes[cell]}")
        elif now > before * LIMIT:
            found.append(f"{name_of(cell)}: {before:,} before, now {now:,} (+{(now / before - 1) * 100:.1f}%)")
    return found


def failures(result):
    """Cells of ublkd whose measurement failed. Refused modes do not count."""
    return [
        f"{name_of(cell)}: {note}"
        for cell, note in result.notes.items()
        if cell[0].startswith(OURS) and result.values[cell] is None and note.startswith("failed")
    ]


def say(message):
    print(f"bench: {message}", file=sys.stderr)


def compare(result, folder):
    """Returns the exit code."""
    broken = failures(result)
    path = os.path.join(folder, f"{result.version}.csv")
    if not os.path.exists(path):
        say(f"there is no committed result for Linux {result.version} to compare with")
    else:
        old = Result(path)
        for key in ("fio", "compiler"):
            if old.meta.get(key) != result.meta.get(key):
                say(f"the committed result was made with {key} {old.meta.get(key)}, this one with "
                    f"{result.meta.get(key)}: this may cause a difference")
        compared = sum(cell in old.values for cell in result.values if cell[0].startswith(OURS))
        broken += regressions(result, old)
        say(f"compared {compared} cells with {path}")
    for sentence in broken:
        say(f"WORSE: {sentence}")
    return 1 if broken else 0


def commit(result, folder, doc):
    if result.meta.get("cells") != "all":
        raise Error("only a whole run can be committed: this one has cells " + result.meta.get("cells", "(unknown)"))
    broken = failures(result)
    if broken:
        raise Error("a run with failures cannot be committed: " + "; ".join(broken))
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, result.version)
    with open(result.path, encoding="utf-8") as source, open(target + ".csv", "w", encoding="utf-8") as copy:
        copy.write(source.read())
    with open(target + ".svg", "w", encoding="utf-8") as copy:
        copy.write(plot(result))
    say(f"wrote {target}.csv and .svg")
    update_document(result, target + ".svg", doc)


def update_document(result, picture, doc):
    series = ".".join(result.version.split(".")[:2])
    begin, end = f"<!-- bench {series} begin -->", f"<!-- bench {series} end -->"
    with open(doc, encoding="utf-8") as file:
        content = file.read()
    if content.count(begin) != 1 or content.count(end) != 1:
        say(f'{doc} has no place for Linux {series} ("{begin}"): its table is not updated')
        return
    head, rest = content.split(begin)
    tail = rest.split(end)[1]
    link = f"![plot]({os.path.relpath(picture, os.path.dirname(os.path.abspath(doc)))})"
    with open(doc, "w", encoding="utf-8") as file:
        file.write(f"{head}{begin}\n{table(result)}\n{link}\n{end}{tail}")
    say(f"updated {doc}")


def make(result, folder):
    for name, content in (
        ("table.md", table(result)),
        ("plot.svg", plot(result)),
        ("result.json", json.dumps(as_json(result), indent=1) + "\n"),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)


def main(arguments):
    commands = {"make": (make, 3), "compare": (compare, 3), "commit": (commit, 4)}
    if not arguments or arguments[0] not in commands or len(arguments) != commands[arguments[0]][1]:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return commands[arguments[0]][0](Result(arguments[1]), *arguments[2:]) or 0
    except (Error, OSError, ValueError) as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
