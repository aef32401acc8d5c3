#!/usr/bin/env python3
"""Does PER_IO_DAEMON bring anything? One busy client thread and one queue, served by one thread of kublk and by two.

    per_io.py [--rounds N] [--ms N]      in the test guest with two CPUs, on the normal clock

Prints the ratio of IOPS, two threads to one: the median over rounds, and the lowest and highest. Only ratios mean
something: the guest's CPUs are emulated.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent


def rounds_of(lines):
    """{(type, size, depth): {threads: [IOPS of each round]}}"""
    cells = {}
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[3].isdigit():
            kind, size, depth, threads, iops = words
            cells.setdefault((kind, size, depth), {}).setdefault(int(threads), []).append(float(iops))
    return cells


def report(cells):
    print(f"{'backend':8} {'size':>5} {'depth':>5} {'two threads : one':>18}  lowest highest")
    for (kind, size, depth), threads in cells.items():
        ratios = [two / one for one, two in zip(threads[1], threads[2])]
        print(f"{kind:8} {size:>5} {depth:>5} {statistics.median(ratios):18.2f}  {min(ratios):6.2f} {max(ratios):7.2f}")


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
    if len(cells) != 8 or any(len(threads[n]) != options.rounds for threads in cells.values() for n in (1, 2)):
        sys.exit("per_io.py: the guest did not measure every cell")
    report(cells)


if __name__ == "__main__":
    main()
