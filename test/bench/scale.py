#!/usr/bin/env python3
"""Rules, verdicts and table of ./dev bench --scale on made-up costs, and its command line. Prints TAP."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
BENCH = os.path.join(HERE, "../../bench")
sys.path.insert(0, os.path.join(BENCH, "scale"))
# pylint: disable=wrong-import-position,import-error
import cases
import bend

HEADER = "# kernel 7.2.1\nline,number,depth,instructions_per_io,ios,runtime_ms,note\n"


def rows_of(line, depth, costs):
    return [{"line": line, "number": number, "depth": depth, "cost": cost, "note": "refused: no, thanks"} for number, cost in costs.items()]


def broken(rule, costs):
    found = rule.breaks(costs)
    return found if found is None else [number for number, _ in found]


def a_flat_line_holds_to_its_part():
    rule = bend.Flat(1)
    assert broken(rule, {1: 10000, 16: 10100, 512: 9000}) == []
    assert broken(rule, {1: 10000, 16: 10101, 512: 10000}) == [16]
    assert broken(rule, {1: 10000, 16: 10500, 512: 10102}) == [16, 512]


def what_came_before_the_base_of_a_flat_line_does_not_count():
    assert broken(bend.Flat(1, since=16), {1: 5000, 16: 10000, 512: 10100}) == []
    assert broken(bend.Flat(1, since=16), {1: 50000, 16: 10000, 512: 10101}) == [512]


def without_its_base_a_line_is_not_judged():
    assert broken(bend.Flat(1), {16: 10000, 512: 20000}) is None
    assert broken(bend.Flat(1), {1: 10000}) is None
    assert broken(bend.Straight(1), {0: 10000, 1: 90000}) is None
    assert broken(bend.First(10, 1, 2), {2: 10000, 4: 90000}) is None


def the_first_of_a_kind_has_a_limit():
    assert broken(bend.First(100, 0, 1), {0: 10000, 1: 10100, 2: 90000}) == []
    assert broken(bend.First(100, 0, 1), {0: 10000, 1: 10101}) == [1]


def a_steep_line_is_straight():
    assert broken(bend.Straight(1), {0: 10000, 1: 20000, 2: 30000, 3: 40000, 4: 50000}) == []
    assert broken(bend.Straight(1), {0: 10000, 1: 20000, 4: 50500}) == []
    assert broken(bend.Straight(1), {0: 10000, 1: 10500, 2: 10600, 4: 10700}) == []


def a_line_that_turns_up_bends():
    assert broken(bend.Straight(1), {0: 10000, 1: 20000, 4: 50501}) == [4]
    assert broken(bend.Straight(1), {0: 10000, 1: 10100, 2: 10303, 3: 10303}) == [2]
    # twice as many, four times as much
    assert broken(bend.Straight(1), {0: 0, 1: 100, 2: 400, 3: 900, 4: 1600}) == [2, 3, 4]


def each_filter_that_walks_over_those_below_is_noticed():
    costs = {number: 32000 + 500 * number + 20 * number * (number - 1) // 2 for number in bend.LINES["filters"].numbers}
    assert bend.Measured("filters", 1, rows_of("filters", 1, costs)).verdict() == "bends at 16", costs


def each_line_notices_a_loop_over_all():
    """Three instructions for each one of the numbers in each of two turns: no rule at depth 1 may let that pass."""
    for name in ("devices", "spread"):
        costs = {number: 32000 + 6 * number for number in bend.LINES[name].numbers}
        measured = bend.Measured(name, 1, rows_of(name, 1, costs))
        assert measured.verdict() == "bends at 128, 512", (name, measured.verdict())


def each_line_holds_when_nothing_grows():
    for name, line in bend.LINES.items():
        for depth in line.rules:
            measured = bend.Measured(name, depth, rows_of(name, depth, dict.fromkeys(line.numbers, 30000)))
            assert measured.verdict() == "holds", (name, depth)
            assert set(line.quick) <= set(line.numbers), name
            quick = bend.Measured(name, depth, rows_of(name, depth, dict.fromkeys(line.quick, 30000)))
            assert quick.verdict() == "holds", (name, depth)


def what_was_not_measured_fails():
    measured = bend.Measured("devices", 1, rows_of("devices", 1, {1: 30000, 16: None, 128: 30000}))
    assert measured.verdict() == "not measured at 16", measured.verdict()
    assert bend.sentences([measured]) == ["NOT MEASURED: devices 16 at depth 1: refused: no, thanks"]
    assert bend.Measured("devices", 1, rows_of("devices", 1, {1: None})).verdict() == "not measured at 1"


def a_part_of_a_line_is_not_judged():
    measured = bend.Measured("devices", 1, rows_of("devices", 1, {16: 30000, 128: 90000}))
    assert measured.verdict() == "not judged" and not bend.sentences([measured]), measured.verdict()


def the_table_has_a_row_per_line_and_depth():
    lines = bend.measured(rows_of("nbd", 1, {1: 1000, 4: 1000}) + rows_of("devices", 1, {16: 99000, 1: 1000, 128: None}))
    text = bend.table(lines)
    assert "| devices, I/O on one | 1 | 1: 1,000 | 16: 99,000 | 128: - | bends at 16 |" in text, text
    assert "| NBD connections | 1 | 1: 1,000 | 4: 1,000 |  | holds |" in text, text
    assert len({line.count("|") for line in text.splitlines()}) == 1, text


class Tree:
    """The command in a tree of its own, so that build/bench of this one keeps what it has."""

    def __init__(self, folder):
        self.top = folder
        shutil.copytree(os.path.join(BENCH, "scale"), os.path.join(folder, "bench/scale"))
        self.rows = os.path.join(folder, "rows.csv")

    def run(self, *arguments):
        command = [os.path.join(self.top, "bench/scale/scale.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def judge(self, text, *arguments):
        with open(self.rows, "w", encoding="utf-8") as file:
            file.write(text)
        return self.run("--rows", self.rows, *arguments)


def in_tree(case):
    def run():
        with tempfile.TemporaryDirectory(prefix="ublkd-scale.") as folder:
            case(Tree(folder))
    run.__name__ = case.__name__
    return run


@in_tree
def a_line_that_holds_is_success(tree):
    done = tree.judge(HEADER + "devices,1,1,32000,9,1000,uses copy\ndevices,512,1,32010,9,1000,uses copy\n")
    assert done.returncode == 0 and "BENDS" not in done.stderr and "| holds |" in done.stdout, done
    with open(os.path.join(tree.top, "build/bench/scale/scale.json"), encoding="utf-8") as file:
        line = json.load(file)["lines"][0]
    assert line["verdict"] == "holds" and line["breaks"] == [] and line["cells"][1]["instructions_per_io"] == 32010, line


@in_tree
def a_line_that_bends_is_failure_with_its_name(tree):
    text = HEADER + "devices,1,1,32000,9,1000,uses copy\ndevices,512,1,33000,9,1000,uses copy\n"
    done = tree.judge(text)
    assert done.returncode == 1 and "BENDS: devices 512 at depth 1: 33,000, 3.1% over the 32,000 at 1" in done.stderr, done
    done = tree.judge(text, "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["lines"][0]["breaks"][0]["number"] == 512, done


@in_tree
def what_cannot_be_measured_any_more_is_failure(tree):
    done = tree.judge(HEADER + "nbd,4,32,-,-,-,failed: fio: broken\n")
    assert done.returncode == 1 and "NOT MEASURED: nbd 4 at depth 32: failed: fio: broken" in done.stderr, done


@in_tree
def nonsense_is_no_result(tree):
    for text in ("hello\n", HEADER, HEADER + "nonsense,1,1,1,1,1,\n", HEADER + "devices,1,77,1,1,1,\n"):
        done = tree.judge(text)
        assert done.returncode == 2 and "scale: " in done.stderr, done


@in_tree
def the_command_line_is_checked(tree):
    for words, arguments in (("no cell matches", ["--only", "nothing"]), ("--only: ", ["--only", "("]), ("at least 0.1", ["--seconds", "0"]),
                             ("unrecognized", ["--fast"])):
        done = tree.run(*arguments)
        assert done.returncode == 2 and words in done.stderr, (arguments, done)
    done = tree.run("--list", "--only", "^(devices|filters) .* 32$", "--quick")
    assert done.stdout.split("\n") == ["devices 1 32", "devices 128 32", "filters 0 32", "filters 1 32", "filters 4 32", "filters 16 32", ""], done


cases.run("rows_of", "broken", "Tree", "in_tree")
