#!/usr/bin/env python3
"""Measures ublkd and its rivals on this machine, with its own kernel and clock. docs/performance.md says how to read it.

  ./dev bench --metal [OPTION...]      as root

Each family (null, mem, file, nbd) is measured under each load, in rounds: in each round every system has its turn, so
what changes on the machine meanwhile meets all of them. ublkd is said to be faster or slower than the best rival only
where all of its rounds are beyond all of the other's. Exit: 0; 2 when nothing can be measured.
"""
import argparse
import csv
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

import measure
import systems
import verdict

LOADS = [(rw, bs, qd) for rw in ("randread", "randwrite") for bs, qd in (("4k", 1), ("4k", 32), ("4k", 128), ("64k", 8))]
LOADS_QUICK = [("randread", "4k", 1), ("randread", "4k", 32)]


def say(text):
    print(f"metal: {text}", file=sys.stderr, flush=True)


def die(text):
    say(text)
    sys.exit(2)


# ---- options ----


def size(text):
    found = re.fullmatch(r"(\d+)(MiB|GiB)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: expected a size like 512MiB or 1GiB")
    return int(found[1]) << (20 if found[2] == "MiB" else 30)


def positive(kind):
    def parse(text):
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
        return value

    return parse


class Options(argparse.Namespace):
    """What the command line says, and where programs are."""

    def program(self, name):
        return os.path.join(self.bin, name)

    def kublk(self):
        """The kernel's test server, built from Debian's source package, unless --kublk says where it is."""
        if self.kublk_path == "none":
            raise systems.Refused("--kublk none")
        if not self.kublk_path:
            done = subprocess.run([os.path.join(systems.TOP, "bench/kublk.sh")], stdout=subprocess.PIPE, text=True, check=False)
            self.kublk_path = done.stdout.strip() if done.returncode == 0 else "none"
            if self.kublk_path == "none":
                raise systems.Refused("bench/kublk.sh cannot build it; --kublk PATH says where one is")
        return self.kublk_path


def parse_options(arguments):
    p = argparse.ArgumentParser(prog="./dev bench --metal", description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--seconds", type=positive(float), default=5.0, help="of each measurement (5)")
    p.add_argument("--rounds", type=positive(int), default=5, help="of each cell (5); below 3 there is no verdict")
    p.add_argument("--only", default="", metavar="PATTERN", help="cells that match, as --list prints them")
    p.add_argument("--quick", action="store_true", help="4k reads at depth 1 and 32 alone")
    p.add_argument("--list", action="store_true", help="print the cells, do not measure")
    p.add_argument("--jobs", type=positive(int), action="append", metavar="N",
                   help="reactors, queues and jobs of fio; may be given several times (1, 2, 4 ... all CPUs)")
    p.add_argument("--dir", default="", metavar="FOLDER", help="where the files of the family file are made (build/bench/metal)")
    p.add_argument("--size", type=size, default=size("1GiB"), dest="size_bytes", help="of each file and disk in memory (1GiB)")
    p.add_argument("--out", default=os.path.join(systems.TOP, "build/bench/metal"), metavar="FOLDER",
                   help="for metal.csv, metal.md, metal.json and metal.svg")
    p.add_argument("--bin", default=os.environ.get("UBLKD_BIN_DIR", os.path.join(systems.TOP, "build/release/bin")),
                   metavar="FOLDER", help="with ublkd and ublkctl (build/release/bin)")
    p.add_argument("--kublk", default="", dest="kublk_path", metavar="PATH", help="the program, or none (bench/kublk.sh builds it)")
    p.add_argument("--json", action="store_true", help="verdicts and medians as JSON on stdout instead of the table")
    options = p.parse_args(arguments, Options())
    options.dir = options.dir or options.out
    try:
        re.compile(options.only)
    except re.error as why:
        p.error(f"--only: {why}")
    return options


# ---- the plan ----


def jobs_of(options):
    if options.jobs:
        return sorted(set(options.jobs))
    most = len(os.sched_getaffinity(0))
    return sorted({most} | {1 << i for i in range(most.bit_length()) if 1 << i <= most})


def plan(options):
    """[(jobs, family, load, [systems])], without what --only leaves out."""
    cells = []
    for jobs in jobs_of(options):
        for family in dict.fromkeys(family for family, _ in systems.SYSTEMS.values()):
            for load in LOADS_QUICK if options.quick else LOADS:
                wanted = [name for name, (of, _) in systems.SYSTEMS.items() if of == family
                          and re.search(options.only, cell_words(name, jobs, load))]
                if wanted:
                    cells.append((jobs, family, load, wanted))
    return cells


def cell_words(name, jobs, load):
    return f"{name} {load[0]} {load[1]} {load[2]} {jobs}"


# ---- the machine ----


def first_line(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return "unknown"


def conditions(options):
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    fio = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "kernel": platform.release(), "cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "fio": fio,
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "autogroup": first_line("/proc/sys/kernel/sched_autogroup_enabled"),
        "seconds": options.seconds, "rounds": options.rounds, "size_bytes": options.size_bytes, "dir": options.dir,
    }


def check_machine(options):
    if os.geteuid() != 0:
        die("block devices are made: run it as root")
    if not shutil.which("fio"):
        die("fio is not installed")
    if not os.path.exists("/dev/ublk-control"):
        subprocess.run(["modprobe", "ublk_drv"], capture_output=True, check=False)
    if not os.path.exists("/dev/ublk-control"):
        die("this kernel has no ublk driver: ublkctl doctor says more")
    for name in ("ublkd", "ublkctl"):
        if not os.access(options.program(name), os.X_OK):
            die(f"no {options.program(name)}: ./dev build makes it")


# ---- the run ----


class Progress:
    """How far it is, and how long the rest will take, by what was measured so far."""

    def __init__(self, total):
        self.total, self.done, self.begun = total, 0, time.monotonic()

    def without(self, number):
        self.total -= number

    def step(self, words):
        self.done += 1
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        say(f"{self.done}/{self.total} {words}; about {left / 60:.0f} min left")


def measure_cell(cell, devices, options, run):
    """All rounds of one cell: rows. A system that fails is left out from then on."""
    jobs, family, load, wanted = cell
    rows, names = [], [name for name in wanted if name in devices]
    for number in range(options.rounds):
        # who goes first changes
        for name in names[number % max(len(names), 1):] + names[:number % max(len(names), 1)]:
            if name in run.refused:
                run.progress.without(1)
                continue
            try:
                row = measure.measure(devices[name], load, jobs, options.seconds, run.counter)
            except systems.Refused as why:
                run.refused[name] = str(why)
                continue
            head = dict(zip(measure.COLUMNS, [family, name, jobs, *load, number + 1]))
            rows.append({**head, **row})
            run.progress.step(f"{cell_words(name, jobs, load)}: {row['iops']:,.0f} IOPS")
    return rows


class Run:
    """What all cells share."""

    def __init__(self, options, cells, folder):
        self.refused = {}
        self.counter = measure.Counter(folder)
        self.progress = Progress(sum(len(wanted) for *_, wanted in cells) * options.rounds)


def run_family(cells, options, run, folder):
    """Cells of one family with the same number of jobs: their devices are made once."""
    context = systems.Context(options, folder)
    context.jobs = cells[0][0]
    names = list(dict.fromkeys(name for *_, wanted in cells for name in wanted if name not in run.refused))
    rows = []
    try:
        devices, refused = systems.start_all(context, names)
        run.refused.update(refused)
        for name in refused:
            run.progress.without(options.rounds * sum(name in wanted for *_, wanted in cells))
        for cell in cells:
            rows += measure_cell(cell, devices, options, run)
    finally:
        context.end()
    return rows


def groups(cells):
    found = {}
    for cell in cells:
        found.setdefault(cell[:2], []).append(cell)
    return found.values()


def write_results(options, rows, refused, meta):
    with open(os.path.join(options.out, "metal.csv"), "w", newline="", encoding="utf-8") as file:
        for key, value in meta.items():
            file.write(f"# {key} {value}\n")
        writer = csv.DictWriter(file, measure.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    cells = verdict.cells_of(rows)
    medians = [{"family": load[0], "jobs": load[1], "rw": load[2], "bs": load[3], "qd": load[4], "system": name,
                "rounds": len(cell.rows), "spread": cell.spread(), **{m: cell.median(m) for m in verdict.MEASURES}}
               for load, of in cells.items() for name, cell in of.items()]
    result = {"machine": meta, "cells": medians, "verdicts": verdict.verdicts(cells), "refused": refused}
    for name, text in (("json", json.dumps(result, indent=1) + "\n"), ("md", verdict.table(rows, refused)), ("svg", verdict.plot(rows))):
        with open(os.path.join(options.out, f"metal.{name}"), "w", encoding="utf-8") as file:
            file.write(text)
    print(json.dumps(result, indent=1) if options.json else verdict.table(rows, refused), end="")


def remove_files(options):
    for name in os.listdir(options.dir):
        if name.startswith("ublkd-metal."):
            os.unlink(os.path.join(options.dir, name))


def main(arguments):
    options = parse_options(arguments)
    cells = plan(options)
    if not cells:
        die(f"no cell matches '{options.only}': see --list")
    if options.list:
        for jobs, _, load, wanted in cells:
            for name in wanted:
                print(cell_words(name, jobs, load))
        return
    check_machine(options)
    # before hours of measuring
    for folder in (options.dir, options.out):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as why:
            die(f"{folder}: {why.strerror}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ublkd-metal.") as folder:
        run = Run(options, cells, folder)
        say(f"{run.progress.total} measurements of {options.seconds:g} s; CPU time and switches are those of the whole machine")
        if run.counter.why:
            say(f"no cache misses: {run.counter.why}")
        try:
            for group in groups(cells):
                rows += run_family(group, options, run, folder)
        except KeyboardInterrupt:
            say("interrupted: the results are those until now")
        finally:
            remove_files(options)
    for name, why in run.refused.items():
        say(f"{name}: {why}")
    if not rows:
        die("nothing was measured")
    write_results(options, rows, run.refused, conditions(options))


if __name__ == "__main__":
    main(sys.argv[1:])
