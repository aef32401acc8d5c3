#!/usr/bin/env python3
"""The sums and verdicts of ./dev bench --own on made-up counts, and its command line. Prints TAP."""
import contextlib
import io
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/own"))
# pylint: disable=wrong-import-position,import-error
import cases
import own

STARTS, NAMES = [0, 100, 200], ["_init", "serve", "commit"]


def printed(cell, cost):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        own.print_cell(cell, cost)
    return out.getvalue()


def only_what_the_longer_run_adds_counts():
    cost = own.by_function({(100, 10): 50, (200, 4): 7}, {(100, 10): 70, (200, 4): 7}, 10, STARTS, NAMES)
    assert cost["serve"] == 20 and cost["commit"] == 0, cost


def pieces_belong_to_the_function_before_them():
    cost = own.by_function({}, {(100, 3): 10, (199, 5): 10, (250, 1): 10}, 10, STARTS, NAMES)
    assert cost["serve"] == 8 and cost["commit"] == 1 and cost["_init"] == 0, cost


def a_cell_over_its_limit_is_told():
    cell = own.Cell("auto", "randread", 32, 100)
    assert "OVER" not in printed(cell, own.collections.Counter(serve=100))
    assert "OVER its limit of 100" in printed(cell, own.collections.Counter(serve=90, commit=11))


def a_cell_that_does_not_exist_is_refused():
    done = subprocess.run([own.__file__, "--only", "QD7"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "there are: zero_copy randread 4k QD1" in done.stderr, done.stderr


if __name__ == "__main__":
    cases.run("printed")
