#!/usr/bin/env python3
"""Compares the CSV of `ublktrace record` with what the program known has noted of itself.

    csv_check.py FILE.csv KNOWN.json [--posters]

--posters: WORKER rows are only of those who post a CQE, as on kernels without fentry. Prints TAP: the
rows, then each of the 38 columns in all rows. The program is one thread, so that its
calls, submissions and completions have one order. Rows of io-wq threads have no fixed order.
"""
import csv
import datetime
import json
import re
import sys

COLUMNS = """Timestamp|Timestamp NS|Event Type|PID|TID|Command|CPU|Ring FD|Ring Ptr|To Submit|Min Complete|
Enter Flags|Req Ptr|User Data|Opcode|FD|Length|Offset|SQE Flags|IO Prio|Buf Index|Personality|Result|
Is Error|Errno|Submit TS|Complete TS|Latency NS|Worker PID|Worker TID|Worker CPU|Is Async|SQ Head|
SQ Tail|CQ Head|CQ Tail|SQ Depth|CQ Depth""".replace("\n", "").split("|")

# include/uapi/linux/io_uring.h; 250 is nobody's
OPCODES = {0: "NOP", 1: "READV", 2: "WRITEV", 3: "FSYNC", 4: "READ_FIXED", 5: "WRITE_FIXED", 6: "POLL_ADD",
           7: "POLL_REMOVE", 11: "TIMEOUT", 22: "READ", 23: "WRITE", 31: "PROVIDE_BUFFERS",
           32: "REMOVE_BUFFERS", 40: "MSG_RING", 250: "250"}
ENTER_FLAGS = ["GETEVENTS", "SQ_WAKEUP", "SQ_WAIT", "EXT_ARG", "REGISTERED_RING"]
SQE_FLAGS = ["FIXED_FILE", "IO_DRAIN", "IO_LINK", "IO_HARDLINK", "ASYNC", "BUFFER_SELECT", "CQE_SKIP_SUCCESS"]
ASYNC = 1 << 4
DEFER_TASKRUN = 1 << 13  # of a ring
IO_DRAIN = 1 << 1
LINKS = 1 << 2 | 1 << 3
CQE_F_MORE = 1 << 1
POINTER = re.compile(r"0xffff[0-9a-f]{12}$")
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$")
# bpf_ktime_get_ns reads the kernel's fast clock, which is off by some microseconds while the clock is
# adjusted (Documentation/core-api/timekeeping.rst)
CLOCK_SLACK_NS = 100_000
WALL_SLACK_NS = 50_000_000  # the two programs look at the clocks at different times


def flags(bits, names):
    return "|".join(name for i, name in enumerate(names) if bits & 1 << i)


class Check:
    """What was wrong, by column; the TAP at the end."""

    def __init__(self):
        self.bad = {name: [] for name in COLUMNS}
        self.filled = {name: 0 for name in COLUMNS}
        self.nr = self.failed = 0

    def ok(self, name, good, *comments):
        self.nr += 1
        print(f"{'ok' if good else 'not ok'} {self.nr} - {name}")
        if not good:
            self.failed += 1
            for comment in comments[:12]:
                print(f"# {comment}")

    def row(self, row, wanted):
        """wanted: column -> a text, a number, or a function that judges the text; absent: empty."""
        for name in COLUMNS:
            value, want = row[name], wanted.get(name, "")
            good = want(value) if callable(want) else value == str(want)
            if not good:
                where = f"{row['Event Type']} at {row['Timestamp NS']}, user data {row['User Data']}"
                words = getattr(want, "words", "another form") if callable(want) else repr(want)
                self.bad[name].append(f"{where}: {value!r}, wanted {words}")
            self.filled[name] += value != ""

    def columns(self):
        for i, name in enumerate(COLUMNS):
            bad = self.bad[name]
            self.ok(f"column {i + 1}, {name}: in {self.filled[name]} rows", not bad and self.filled[name],
                    f"{len(bad)} wrong", *bad)


def between(low, high):
    def judge(text):
        return text.isdigit() and low <= int(text) <= high
    judge.words = f"{low} to {high}"
    return judge


def one_of(*values):
    def judge(text):
        return text in [str(value) for value in values]
    judge.words = f"one of {values}"
    return judge


class Truth:
    """The notes, each with what can be known of its row."""

    def __init__(self, notes):
        self.pid, self.tid, self.comm = notes["pid"], notes["tid"], notes["comm"]
        self.workers, self.notes = notes["workers"], notes
        self.enters, self.sqes, self.cqes = [], [], []
        for ring in notes["rings"]:
            position = 0
            for enter in ring["enters"]:
                enter["ring"] = ring
                self.enters.append(enter)
            for sqe in ring["sqes"]:
                sqe["ring"], sqe["call"] = ring, ring["enters"][sqe["enter"]]
                self.sqes.append(sqe)
            for cqe in ring["cqes"]:
                cqe["ring"], cqe["call"], cqe["position"] = ring, ring["enters"][cqe["enter"]], position
                position += 1
                self.cqes.append(cqe)
        self.enters.sort(key=lambda enter: enter["begin_ns"])
        self.sqes.sort(key=lambda sqe: sqe["call"]["begin_ns"])
        self.by_data = {str(sqe["user_data"]): sqe for sqe in self.sqes}

        # What is linked behind another may run in the thread of that; what was kept back by IO_DRAIN, and
        # the next one, go to io-wq too (io_queue_sqe_fallback of io_uring/io_uring.c).
        other = {id(sqe) for sqe in self.sqes if sqe["flags"] & IO_DRAIN}
        other |= {id(b) for a, b in zip(self.sqes, self.sqes[1:]) if a["flags"] & (LINKS | IO_DRAIN)}
        self.nops = {str(sqe["user_data"]) for sqe in self.sqes
                     if OPCODES[sqe["opcode"]] == "NOP" and id(sqe) not in other}

    def forced(self, without=0):
        """But on rings that have been set up so."""
        return {str(sqe["user_data"]) for sqe in self.sqes
                if sqe["flags"] & ASYNC and not sqe["ring"]["setup_flags"] & without}

    def cpu_at(self, ns):
        """Where the program ran: it moves before each call."""
        return [enter for enter in self.enters if enter["begin_ns"] <= ns][-1]["cpu"]

    def origin(self, row, kind, call, begin_ns=None):
        """In the time of the call, or from begin_ns to its end."""
        ns = int(row["Timestamp NS"])
        return {
            "Timestamp": lambda text: self.date(text, ns),
            "Timestamp NS": between((begin_ns or call["begin_ns"]) - CLOCK_SLACK_NS,
                                    call["end_ns"] + CLOCK_SLACK_NS),
            "Event Type": kind,
            "PID": self.pid,
            "TID": self.tid,
            "Command": self.comm,
            "CPU": call["cpu"],
        }

    def date(self, text, ns):
        if not DATE.match(text):
            return False
        date = datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=datetime.timezone.utc)
        us = (date - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(microseconds=1)
        return abs(us * 1000 - ns - self.notes["wall_offset_ns"]) < WALL_SLACK_NS


def depths(row, wanted):
    """The last two columns are differences of those before."""
    for queue in "SQ", "CQ":
        if row[f"{queue} Head"].isdigit() and row[f"{queue} Tail"].isdigit():
            wanted[f"{queue} Depth"] = (int(row[f"{queue} Tail"]) - int(row[f"{queue} Head"])) & 0xffffffff
    return wanted


def check_enter(check, truth, row, enter):
    wanted = truth.origin(row, "ENTER", enter)
    wanted.update({
        "Ring FD": enter["ring"]["fd"],
        "Ring Ptr": enter["ring"]["pointer"],
        "To Submit": enter["to_submit"],
        "Min Complete": enter["min_complete"],
        "Enter Flags": flags(enter["flags"], ENTER_FLAGS),
        "SQ Head": enter["sq_head"],
        "SQ Tail": enter["sq_tail"],
        "CQ Head": enter["cq_head"],
        "CQ Tail": enter["cq_tail"],
    })
    check.row(row, depths(row, wanted))


def check_submit(check, truth, row, sqe):
    call = sqe["call"]
    wanted = truth.origin(row, "SUBMIT", call)
    wanted.update({
        "Ring Ptr": sqe["ring"]["pointer"],
        "Req Ptr": POINTER.match,
        "User Data": sqe["user_data"],
        "Opcode": OPCODES[sqe["opcode"]],
        "FD": sqe["fd"],
        "Length": sqe["len"],
        "Offset": sqe["off"],
        "SQE Flags": flags(sqe["flags"], SQE_FLAGS),
        "IO Prio": sqe["ioprio"],
        "Buf Index": sqe["buf_index"],
        "Personality": sqe["personality"],
        "Submit TS": row["Timestamp NS"],
        # the kernel takes all of a call before it moves the head
        "SQ Head": call["sq_head"],
        "SQ Tail": call["sq_tail"],
        "CQ Head": call["cq_head"],
        "CQ Tail": between(call["cq_tail"], call["cq_tail"] + call["to_submit"]),
    })
    check.row(row, depths(row, wanted))


def check_complete(check, truth, row, cqe, submits, asyncs):
    call, res, ns = cqe["call"], cqe["res"], int(row["Timestamp NS"])
    sqe = truth.by_data.get(str(cqe["user_data"]))
    own = sqe is not None and not cqe["flags"] & CQE_F_MORE  # else it has no request in the kernel
    submit = submits.get(str(cqe["user_data"])) if own else None
    # It was there before the call that fetched it: at any time since it was submitted, wherever that was.
    early = sqe is not None and cqe["position"] < call["cq_tail"]
    wanted = truth.origin(row, "COMPLETE", call, sqe["call"]["begin_ns"] if early else None)
    if early:
        wanted["CPU"] = str.isdigit
    wanted.update({
        "Ring Ptr": cqe["ring"]["pointer"],
        "User Data": cqe["user_data"],
        "Result": res,
        "Is Error": 1 if res < 0 else "",
        "Errno": -res if res < 0 else "",
        "Complete TS": row["Timestamp NS"],
        "SQ Head": one_of(call["sq_head"], call["sq_tail"]),
        "SQ Tail": call["sq_tail"],
        "CQ Head": cqe["cq_head"],
        # the kernel moves the tail behind it later
        "CQ Tail": between(cqe["cq_head"], cqe["position"]),
    })
    if sqe is None:  # a message: a call for another ring posted it
        wanted["CPU"] = truth.cpu_at(ns)
    if submit:
        wanted.update({
            "Req Ptr": submit["Req Ptr"],
            "Opcode": OPCODES[sqe["opcode"]],
            "FD": sqe["fd"],
            "Submit TS": submit["Timestamp NS"],
            "Latency NS": ns - int(submit["Timestamp NS"]),
        })
    if own and str(cqe["user_data"]) in asyncs:
        wanted["Is Async"] = 1
        # the thread of io-wq posts it, but on a ring of DEFER_TASKRUN, or when it is an end of a chain
        if row["TID"] != str(truth.tid):
            wanted.update({"TID": one_of(*truth.workers), "Command": f"iou-wrk-{truth.tid}", "CPU": str.isdigit})
    check.row(row, depths(row, wanted))


def check_worker(check, truth, row, submits):
    sqe, submit = truth.by_data[row["User Data"]], submits[row["User Data"]]
    call = sqe["call"]
    wanted = truth.origin(row, "WORKER", call, int(submit["Timestamp NS"]))
    wanted.update({
        "TID": one_of(*truth.workers),
        "Command": f"iou-wrk-{truth.tid}",
        "CPU": str.isdigit,
        "Ring Ptr": sqe["ring"]["pointer"],
        "Req Ptr": submit["Req Ptr"],
        "User Data": sqe["user_data"],
        "Opcode": OPCODES[sqe["opcode"]],
        "FD": sqe["fd"],
        "Submit TS": submit["Timestamp NS"],
        "Worker PID": truth.pid,
        "Worker TID": row["TID"],
        "Worker CPU": row["CPU"],
        "Is Async": 1,
        "SQ Head": one_of(call["sq_head"], call["sq_tail"]),
        "SQ Tail": call["sq_tail"],
        "CQ Head": call["cq_head"],
        "CQ Tail": between(call["cq_head"], call["cq_head"] + call["to_submit"]),
    })
    check.row(row, depths(row, wanted))


def find_pointers(check, truth, enters):
    """A ring has one address, and no other ring has it."""
    for row, enter in zip(enters, truth.enters):
        enter["ring"].setdefault("pointer", row["Ring Ptr"])
    pointers = [ring.setdefault("pointer", "none") for ring in truth.notes["rings"]]
    check.ok("each ring has a pointer of its own",
             len(set(pointers)) == len(pointers) and all(POINTER.match(pointer) for pointer in pointers), *pointers)


def differences(got, wanted):
    return [f"{len(got)} rows, {len(wanted)} were done"] + [f"wanted {w}, got {g}" for g, w in zip(got, wanted) if g != w]


def check_submits(check, truth, rows):
    got = [row["User Data"] for row in rows]
    wanted = [str(sqe["user_data"]) for sqe in truth.sqes]
    check.ok(f"SUBMIT: all {len(wanted)}, in order", got == wanted, *differences(got, wanted))
    submits = {row["User Data"]: row for row in rows}
    refused = [sqe for sqe in truth.sqes if sqe["init_fails"]]
    check.ok(f"SUBMIT: also the {len(refused)} that the kernel refused at once",
             refused and all(str(sqe["user_data"]) in submits for sqe in refused))
    for row in rows:
        if row["User Data"] in truth.by_data:
            check_submit(check, truth, row, truth.by_data[row["User Data"]])
    return submits


def check_workers(check, truth, rows, submits, forced):
    asyncs = {row["User Data"] for row in rows}
    check.ok(f"WORKER: all {len(forced)} that were forced", forced and forced <= asyncs, *sorted(forced - asyncs))
    check.ok("WORKER: once for each", len(asyncs) == len(rows))
    unknown = asyncs - set(truth.by_data)
    check.ok("WORKER: only of requests of the program", not unknown, *unknown)
    check.ok("WORKER: no NOP that was not forced", not (asyncs - truth.forced()) & truth.nops)
    for row in rows:
        if row["User Data"] in truth.by_data and row["User Data"] in submits:
            check_worker(check, truth, row, submits)
    return asyncs


def check_posters(check, truth, rows, completes, submits):
    """Where io-wq cannot be watched, its threads are known by the CQEs that they post."""
    asyncs = {row["User Data"] for row in completes if row["Is Async"] == "1"}
    by_worker = {row["User Data"] for row in completes if row["TID"] != str(truth.tid)}
    workers = check_workers(check, truth, rows, submits, truth.forced(without=DEFER_TASKRUN))
    check.ok("WORKER: those whose CQE a thread of io-wq posted", workers == by_worker, *(workers ^ by_worker))
    forced = truth.forced()
    check.ok(f"COMPLETE: all {len(forced)} that were forced are async", forced <= asyncs, *(forced - asyncs))
    check.ok("COMPLETE: no NOP that was not forced", not (asyncs - forced) & truth.nops)
    return asyncs


def check_completes(check, truth, rows, submits, asyncs):
    for ring in truth.notes["rings"]:
        mine = [row for row in rows if row["Ring Ptr"] == ring["pointer"]]
        got = [(row["User Data"], row["Result"]) for row in mine]
        wanted = [(str(cqe["user_data"]), str(cqe["res"])) for cqe in ring["cqes"]]
        check.ok(f"COMPLETE: all {len(wanted)} of ring {ring['name']}, in order", got == wanted,
                 *differences(got, wanted))
        for row, cqe in zip(mine, ring["cqes"]):
            if row["User Data"] == str(cqe["user_data"]):
                check_complete(check, truth, row, cqe, submits, asyncs)


def main():
    check = Check()
    posters = "--posters" in sys.argv[3:]
    with open(sys.argv[2], encoding="utf-8") as file:
        truth = Truth(json.load(file))
    with open(sys.argv[1], encoding="utf-8", newline="") as file:
        table = list(csv.reader(file, strict=True))
    check.ok("the header has the 38 columns", table[0] == COLUMNS, *table[0])
    check.ok("so has each row", all(len(row) == len(COLUMNS) for row in table))
    rows = [dict(zip(COLUMNS, row)) for row in table[1:]]
    check.ok("the program's rows only", all(row["PID"] == str(truth.pid) for row in rows))
    # records of several CPUs come nearly in order
    rows.sort(key=lambda row: int(row["Timestamp NS"]))
    kinds = {kind: [row for row in rows if row["Event Type"] == kind]
             for kind in ("ENTER", "SUBMIT", "COMPLETE", "WORKER")}
    check.ok("four kinds of rows only", sum(map(len, kinds.values())) == len(rows))

    enters = kinds["ENTER"]
    check.ok(f"ENTER: all {len(truth.enters)}", len(enters) == len(truth.enters), f"{len(enters)} rows")
    find_pointers(check, truth, enters)
    for row, enter in zip(enters, truth.enters):
        check_enter(check, truth, row, enter)
    submits = check_submits(check, truth, kinds["SUBMIT"])
    if posters:
        asyncs = check_posters(check, truth, kinds["WORKER"], kinds["COMPLETE"], submits)
    else:
        asyncs = check_workers(check, truth, kinds["WORKER"], submits, truth.forced())
    check_completes(check, truth, kinds["COMPLETE"], submits, asyncs)
    check.columns()
    print(f"1..{check.nr}")
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
