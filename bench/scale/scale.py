#!/usr/bin/env python3
"""Shows that an I/O costs the same however much else there is, in instructions per I/O of the test guest's whole machine.
docs/performance.md says how to read it.

  ./dev bench --scale [OPTION...]

Each line is measured at several numbers of devices, children of a stripe, filters or NBD connections, and has a rule how much
its cost may grow. Exit: 0; 1 when a line bends, or a cell cannot be measured, with its name; 2 when nothing was measured.
"""
import argparse
import csv
import json
import os
import re
import subprocess
import sys

import bend

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(TOP, "build/bench/scale")
SHARE = os.path.join(TOP, "build/out")
COLUMNS = ["line", "number", "depth", "instructions_per_io", "ios", "runtime_ms", "note"]


def say(text):
    print(f"scale: {text}", file=sys.stderr, flush=True)


def die(text):
    say(text)
    sys.exit(2)


# ---- options ----


def seconds(text):
    value = float(text)
    if value < 0.1:
        raise argparse.ArgumentTypeError("must be at least 0.1 for a repeatable result")
    return value


def parse_options(arguments):
    p = argparse.ArgumentParser(prog="./dev bench --scale", description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("--quick", action="store_true", help="fewer numbers, half a second each")
    p.add_argument("--only", default="", metavar="PATTERN", help="cells that match, as --list prints them: '^nbd .* 32$'")
    p.add_argument("--list", action="store_true", help="print the cells (line, number, depth), do not measure")
    p.add_argument("--json", action="store_true", help="the result as JSON on stdout instead of the table")
    p.add_argument("--seconds", type=seconds, metavar="N", help="guest time per cell (1; --quick: 0.5)")
    p.add_argument("--threads", action="store_true", help="print for each cell, too, which threads used the instructions")
    p.add_argument("--rows", metavar="FILE", help="judge an earlier run (build/bench/scale/scale.csv) instead of measuring")
    p.add_argument("-k", default="7.2", dest="series", metavar="SERIES", help="guest kernel (7.2)")
    options = p.parse_args(arguments)
    options.ms = round(1000 * (options.seconds or (0.5 if options.quick else 1)))
    try:
        re.compile(options.only)
    except re.error as why:
        p.error(f"--only: {why}")
    return options


def plan(options):
    """[(line, number, depth)]. The cells of one device are neighbours."""
    cells = [(name, number, depth) for name, line in bend.LINES.items()
             for number in (line.quick if options.quick else line.numbers) for depth in line.rules]
    return [cell for cell in cells if re.search(options.only, words_of(cell))]


def words_of(cell):
    return " ".join(str(part) for part in cell)


# ---- the guest: bench/guest.sh does the work, as for the other cells ----


def run_guest(cells, options):
    """Its rows are in build/out/bench-rows.scale then."""
    program = os.path.join(TOP, "build/release/bin/ublkd")
    if not os.access(program, os.X_OK):
        die(f"no {program}: ./dev build makes it")
    os.makedirs(SHARE, exist_ok=True)
    with open(os.path.join(SHARE, "bench-plan.scale"), "w", encoding="utf-8") as file:
        file.writelines(f"scale-{name} {number} randread 4k {depth}\n" for name, number, depth in cells)
    environment = {
        "UBLKD_BENCH_MS": str(options.ms),
        "UBLKD_BENCH_THREADS": "1" if options.threads else "",
        "UBLKD_VM_ENV": "UBLKD_BENCH_MS UBLKD_BENCH_THREADS",
        "UBLKD_VM_DMESG": os.path.join(OUT, "dmesg"),
    }
    # a guest second takes 3 to 10 real ones, and hundreds of devices a minute or two
    limit_s = 900 + len(cells) * (options.ms + 1000) * 50 // 1000
    say(f"{len(cells)} cells")
    done = subprocess.run([os.path.join(TOP, "test/vm/vm.sh"), "-k", options.series, "-i", "-t", str(limit_s), "--",
                           os.path.join(TOP, "bench/guest.sh"), "scale"],
                          env=os.environ | environment, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        die(f"the guest failed with code {done.returncode}; build/out/bench-rows.scale has the rows that it measured")


def guest_rows():
    with open(os.path.join(SHARE, "bench-rows.scale"), newline="", encoding="utf-8") as file:
        for system, mode, _, _, qd, *values in csv.reader(file):
            yield dict(zip(COLUMNS, [system.removeprefix("scale-"), mode, qd, *values]))


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    except OSError:
        return "unknown"


def conditions(options):
    with open(os.path.join(SHARE, "bench-kernel"), encoding="utf-8") as file:
        kernel = file.read().strip()
    return {"kernel": kernel, "fio": first_line(["fio", "--version"]), "compiler": first_line(["cc", "--version"]),
            "ublkd": first_line(["git", "-C", TOP, "describe", "--always", "--dirty"]), "seconds": options.ms / 1000}


# ---- the result ----


def write_rows(path, meta, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {key} {value}\n" for key, value in meta.items())
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path):
    """Its conditions, and rows as bend.measured takes them."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = file.read().splitlines()
    meta = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    reader = csv.DictReader(line for line in lines if not line.startswith("#"))
    if reader.fieldnames != COLUMNS:
        die(f"{path}: the columns are not {','.join(COLUMNS)}")
    rows = []
    for row in reader:
        if row["line"] not in bend.LINES or int(row["depth"]) not in bend.LINES[row["line"]].rules:
            die(f"{path}: there is no line {row['line']} at depth {row['depth']}")
        cost = row.pop("instructions_per_io")
        rows.append({**row, "number": int(row["number"]), "depth": int(row["depth"]), "cost": None if cost == "-" else int(cost)})
    if not rows:
        die(f"{path}: no cell was measured")
    return meta, rows


def as_json(meta, lines):
    return {"meta": meta, "lines": [
        {"line": line.name, "depth": line.depth, "verdict": line.verdict(), "rule": line.rule(),
         "breaks": [{"number": number, "why": why} for number, why in line.breaks()],
         "not_measured": [number for number, _ in line.missing()],
         "cells": [{"number": row["number"], "instructions_per_io": row["cost"], "note": row["note"]} for row in line.rows]}
        for line in lines]}


def report(path, options):
    """Prints and writes it; returns the exit code."""
    meta, rows = read_rows(path)
    lines = bend.measured(rows)
    text = {"json": json.dumps(as_json(meta, lines), indent=1) + "\n", "md": bend.table(lines)}
    for name, content in text.items():
        with open(os.path.join(OUT, f"scale.{name}"), "w", encoding="utf-8") as file:
            file.write(content)
    print(text["json" if options.json else "md"], end="")
    broken = bend.sentences(lines)
    for sentence in broken:
        say(sentence)
    say("build/bench/scale has scale.csv, scale.json and scale.md")
    return 1 if broken else 0


def main(arguments):
    options = parse_options(arguments)
    cells = plan(options)
    if not cells:
        die(f"no cell matches '{options.only}': see --list")
    if options.list:
        print("\n".join(words_of(cell) for cell in cells))
        return 0
    os.makedirs(OUT, exist_ok=True)
    path = options.rows
    if not path:
        run_guest(cells, options)
        path = os.path.join(OUT, "scale.csv")
        write_rows(path, conditions(options), guest_rows())
    return report(path, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
