#!/usr/bin/env python3
"""Verdicts, table and plot of ./dev bench --metal on made-up rows, and its command line. Prints TAP."""
import os
import subprocess
import sys
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
METAL = os.path.join(HERE, "../../bench/metal")
sys.path.insert(0, METAL)
# pylint: disable=wrong-import-position,import-error
import cases
import measure
import metal
import verdict

LOAD = {"family": "file", "jobs": 2, "rw": "randread", "bs": "4k", "qd": 32}


def rows_of(system, iops, cpu=10.0, **other):
    return [{**dict.fromkeys(measure.COLUMNS), **LOAD, "system": system, "round": i + 1, "iops": float(value), "p50_us": 5.0,
             "p99_us": 9.0, "p999_us": 20.0, "cpu_s_per_mio": cpu, "switches_per_io": 0.5, **other} for i, value in enumerate(iops)]


def one(ours, *rivals):
    """The only verdict: ours and rivals are lists of IOPS."""
    rows = rows_of("ublkd-file", ours)
    for number, rival in enumerate(rivals):
        rows += rows_of(f"rival-{number}", rival)
    found = verdict.verdicts(verdict.cells_of(rows))
    assert len(found) == 1, found
    return found[0]


def a_difference_beyond_all_rounds_counts():
    v = one([110, 120, 115], [100, 109, 90])
    assert v["verdict"] == "faster" and v["rival"] == "rival-0", v
    assert abs(v["ratio"] - 1.15) < 0.001, v
    assert one([80, 70, 75], [100, 109, 90])["verdict"] == "slower"


def rounds_that_overlap_are_equal():
    assert one([110, 120, 99], [100, 109, 90])["verdict"] == "equal within the spread"
    assert one([100, 100, 100], [100, 100, 100])["verdict"] == "equal within the spread"


def two_rounds_are_too_few():
    assert one([110, 120], [10, 11])["verdict"] == "too few rounds"


def the_best_rival_is_by_median():
    assert one([10, 10, 10], [500, 9, 9], [20, 20, 20])["rival"] == "rival-1"


def a_bound_is_no_rival():
    rows = rows_of("ublkd-null", [10, 10, 10]) + rows_of("null_blk", [90, 90, 90])
    assert verdict.verdicts(verdict.cells_of(rows)) == []


def loads_are_kept_apart():
    rows = rows_of("ublkd-file", [10, 10, 10]) + rows_of("loop", [5, 5, 5])
    rows += rows_of("ublkd-file", [1, 1, 1], qd=1) + rows_of("loop", [5, 5, 5], qd=1)
    assert [v["verdict"] for v in verdict.verdicts(verdict.cells_of(rows))] == ["faster", "slower"]


def the_table_has_medians_and_reasons():
    text = verdict.table(rows_of("ublkd-file", [1000, 3000, 2000]) + rows_of("loop", [500, 500, 500]), {"nbd-ko": "no module"})
    assert "| 4k read QD32, 2 jobs | ublkd-file | 2,000 | 100% | 5 | 9 | 20 | 10 | 0.5 | - | faster (4.00 of loop) |" in text, text
    assert "nbd-ko is not measured: no module" in text, text


def the_plot_is_svg():
    text = verdict.plot(rows_of("ublkd-file", [1000, 3000, 2000]) + rows_of("loop", [500, 500, 500]))
    assert len(xml.dom.minidom.parseString(text).getElementsByTagName("circle")) == 1
    xml.dom.minidom.parseString(verdict.plot([]))


def the_plan_follows_only():
    options = metal.parse_options(["--only", "^(ublkd-file|loop) randread 4k 1 2$", "--jobs", "2", "--jobs", "1"])
    assert metal.plan(options) == [(2, "file", ("randread", "4k", 1), ["ublkd-file", "loop"])], metal.plan(options)


def command(*arguments):
    return subprocess.run([os.path.join(METAL, "metal.py"), *arguments], capture_output=True, text=True, check=False)


def the_command_line_is_checked():
    for words, arguments in (("no cell matches", ["--only", "nothing"]), ("--only: ", ["--only", "("]),
                             ("expected a size", ["--size", "3"]), ("above 0", ["--rounds", "0"]),
                             ("unrecognized", ["--fast"])):
        done = command(*arguments)
        assert done.returncode == 2 and words in done.stderr, (arguments, done)
    done = command("--list", "--only", "nbd", "--jobs", "1", "--quick")
    assert done.stdout.splitlines() == [f"{name} randread 4k {qd} 1" for qd in (1, 32) for name in ("ublkd-nbd", "nbd-ko")], done


cases.run("rows_of", "one", "command")
