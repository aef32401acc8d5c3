#!/usr/bin/env python3
"""What ./dev bench --per-io makes of the guest's lines. Prints TAP."""
import contextlib
import io
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/per_io"))
# pylint: disable=wrong-import-position,import-error
import cases
import per_io

# Two rounds of one cell; the second one is slower for all.
LINES = ["null 4k 32 same 1000", "null 4k 32 other 1500", "null 4k 32 both 3000",
         "null 4k 32 same 500", "null 4k 32 other 1000", "null 4k 32 both 500"]


def rounds_are_kept_apart_by_cell_and_server():
    cells = per_io.rounds_of(LINES + ["loop 64k 1 same 7.5"])
    assert cells[("null", "4k", "32")] == {"same": [1000, 500], "other": [1500, 1000], "both": [3000, 500]}
    assert cells[("loop", "64k", "1")] == {"same": [7.5]}


def what_else_the_guest_says_is_no_round():
    assert not per_io.rounds_of(["", "null 4k 32 neither 1000", "null 4k 32 same", "one two three same 1 2"])


def a_ratio_is_of_one_round_and_its_median_is_told():
    rounds = per_io.rounds_of(LINES)[("null", "4k", "32")]
    assert per_io.ratio(rounds, "other", "same") == "  1.75 (1.50 to 2.00)"
    assert per_io.ratio(rounds, "both", "other") == "  1.25 (0.50 to 2.00)"


def the_report_has_a_line_for_each_cell():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        per_io.report(per_io.rounds_of(LINES))
    head, line = out.getvalue().splitlines()
    assert head.split()[:3] == ["backend", "size", "depth"]
    assert line.split() == "null 4k 32 1.75 (1.50 to 2.00) 2.00 (1.00 to 3.00) 1.25 (0.50 to 2.00)".split()


if __name__ == "__main__":
    cases.run()
