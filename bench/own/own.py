#!/usr/bin/env python3
"""Counts the instructions of the daemon's own code per 4k I/O of a file, by function: what of an I/O is ours. The kernel,
fio and libraries are not in it. docs/performance.md says how to read it.

  ./dev bench --own [OPTION...]

Each cell is measured twice in the test guest, for a short and for a long time: the difference is of nothing but the steady
state. Exit: 0; 1 when a cell is over its limit; 2 when it cannot be measured.
"""
import argparse
import bisect
import collections
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(TOP, "build/bench/own")
SHARE = os.path.join(TOP, "build/out")
ELF = os.path.join(TOP, "build/release/bin/ublkd")
PLUGIN = os.path.join(OUT, "count.so")
SHORT_MS, LONG_MS = 300, 1300

# What a change may not go over: a few instructions more than the best so far.
Cell = collections.namedtuple("Cell", "mode rw depth limit")
CELLS = [Cell("zero_copy", "randread", 1, 760), Cell("auto", "randread", 32, 430),
         Cell("zero_copy", "randwrite", 1, 760), Cell("auto", "randwrite", 32, 435)]


def die(text):
    print(f"own: {text}", file=sys.stderr)
    sys.exit(2)


def run(command, what, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        die(f"{what}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


# ---- the guest ----


def guest(cell, ms):
    """Returns the executed pieces of the program, {(offset, instructions): times}, and the number of I/Os of the measurement."""
    plan, rows = os.path.join(SHARE, "bench-plan.own"), os.path.join(SHARE, "bench-rows.own")
    with open(plan, "w", encoding="ascii") as file:
        file.write(f"ublkd-file {cell.mode} {cell.rw} 4k {cell.depth}\n")
    names = ["UBLKD_BENCH_MS", "UBLKD_BENCH_KUBLK", "UBLKD_BENCH_FLOOR", "UBLKD_BENCH_THREADS", "UBLKD_BENCH_CLIENT_CPU"]
    own = {"OWN_ELF": ELF, "OWN_OUT": os.path.join(OUT, "pieces"), "OWN_PLUGIN": PLUGIN, "UBLKD_VM_QEMU": os.path.join(HERE, "qemu.sh"),
           "UBLKD_VM_ENV": " ".join(names), "UBLKD_VM_DMESG": os.path.join(OUT, "dmesg"), **dict.fromkeys(names, ""), "UBLKD_BENCH_MS": str(ms)}
    run([os.path.join(TOP, "test/vm/vm.sh"), "-k", "7.2", "-i", "-t", "900", "--", os.path.join(TOP, "bench/guest.sh"), "own"],
        "the guest", env={**os.environ, **own})
    with open(rows, encoding="ascii") as file:
        fields = file.read().strip().split(",")
    if len(fields) < 8 or not fields[6].isdigit():
        die(f"the cell was not measured: {','.join(fields)}")
    with open(own["OWN_OUT"], encoding="ascii") as file:
        lines = [[int(word) for word in line.split()] for line in file]
    return {(offset, nr): times for offset, nr, times in lines}, int(fields[6])


# ---- functions ----


def functions():
    """Start addresses of functions, ascending, and their names."""
    found = []
    for line in run(["nm", "-n", ELF], "nm").splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "tT":
            found.append((int(words[0], 16), words[2].split(".")[0]))
    return [at for at, _ in found], [name for _, name in found]


def by_function(before, after, ios, starts, names):
    """Instructions per I/O of each function, the most first."""
    cost = collections.Counter()
    for (offset, nr), times in after.items():
        more = times - before.get((offset, nr), 0)
        cost[names[max(bisect.bisect_right(starts, offset) - 1, 0)]] += nr * more / ios
    return cost


def measure(cell, starts, names):
    before, few = guest(cell, SHORT_MS)
    after, many = guest(cell, LONG_MS)
    if many <= few:
        die(f"{many} I/Os in {LONG_MS} ms, {few} in {SHORT_MS} ms")
    return by_function(before, after, many - few, starts, names)


def title(cell):
    return f"{cell.mode} {cell.rw} 4k QD{cell.depth}"


def print_cell(cell, cost):
    total = sum(cost.values())
    verdict = "" if total <= cell.limit else f"   OVER its limit of {cell.limit}"
    print(f"{title(cell)}: {total:.0f} instructions per I/O{verdict}")
    for name, part in cost.most_common(12):
        if part >= 0.5:
            print(f"  {part:7.1f}  {name}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --own", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains TEXT, such as QD32")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    options = parser.parse_args()
    cells = [cell for cell in CELLS if options.only in title(cell)]
    if not cells:
        die(f"no cell has {options.only} in its name; there are: {', '.join(title(cell) for cell in CELLS)}")
    os.makedirs(OUT, exist_ok=True)
    os.makedirs(SHARE, exist_ok=True)
    run(["cc", "-std=gnu17", "-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-o", PLUGIN, os.path.join(HERE, "count.c")], "the plugin")
    starts, names = functions()
    over, all_costs = False, {}
    for cell in cells:
        cost = measure(cell, starts, names)
        over |= sum(cost.values()) > cell.limit
        all_costs[title(cell)] = {"total": sum(cost.values()), "limit": cell.limit, "functions": dict(cost.most_common())}
        if not options.json:
            print_cell(cell, cost)
    if options.json:
        print(json.dumps(all_costs, indent=1))
    sys.exit(over)


if __name__ == "__main__":
    main()
