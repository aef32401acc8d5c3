#!/usr/bin/env python3
"""Does PER_IO_DAEMON bring anything? One busy client thread, pinned to CPU 0, and one queue of kublk.

    per_io.py [--rounds N] [--ms N]      in the test guest with two CPUs, on the normal clock

The queue is served by one thread on CPU 0 ("same"), by one on CPU 1 ("other"), by one on each ("both": PER_IO_DAEMON).
Prints ratios of IOPS: the median over rounds, and the lowest and highest. Only ratios mean something: the guest's
CPUs are emulated.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
SERVERS = ("same", "other", "both")


def rounds_of(lines):
    """{(type, size, depth): {servers: [IOPS of each round]}}"""
    cells = {}
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[3] in SERVERS:
            kind, size, depth, servers, iops = words
            cells.setdefault((kind, size, depth), {}).setdefault(servers, []).append(float(iops))
    return cells


def ratio(rounds, one, two):
    ratios = [a / b for a, b in zip(rounds[one], rounds[two])]
    return f"{statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def report(cells):
    print(f"{'backend':8} {'size':>5} {'depth':>5}   {'other : same':24} {'both : same':24} {'both : other':24}")
    for (kind, size, depth), rounds in cells.items():
        columns = [ratio(rounds, *pair) for pair in (("other", "same"), ("both", "same"), ("both", "other"))]
        print(f"{kind:8} {size:>5} {depth:>5} " + "".join(f"  {column:23}" for column in columns).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ms", type=int, default=1500)
    options = parser.parse_args()
    # the guest sees this tree and no home folder
    kublk = TOP / "build/out/kublk"
    built = subprocess.run([TOP / "bench/kublk.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    kublk.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(built, kublk)
    guest = [TOP / "test/vm/vm.sh", "-k", "7.2", "-t", "3600", "--", TOP / "bench/per_io/guest_per_io.sh", kublk,
             str(options.rounds), str(options.ms)]
    lines = subprocess.run(guest, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    cells = rounds_of(lines)
    if len(cells) != 8 or any(len(rounds[n]) != options.rounds for rounds in cells.values() for n in SERVERS):
        sys.exit("per_io.py: the guest did not measure every cell")
    report(cells)


if __name__ == "__main__":
    main()
