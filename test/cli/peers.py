#!/usr/bin/env python3
"""ublkctl against peers that are no ublkd of its version: older, newer, broken, gone in the middle of an answer.
Whatever comes: no crash, no success where there was none, and words. Prints TAP.
Usage: peers.py BIN_FOLDER"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading

BIN = sys.argv[1]
tmp = tempfile.TemporaryDirectory(prefix="ublkd-peers.")
PATH = os.path.join(tmp.name, "socket")
OWN = subprocess.run([f"{BIN}/ublkctl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
COMMANDS = [
    ["list"], ["show", "a"], ["del", "a"], ["resize", "a", "1G"], ["snapshot", "list", "a"], ["snapshot", "create", "a", "b"],
    ["cache", "stats", "a"], ["cache", "warm", "a"], ["cache", "drop", "a"], ["gc"], ["gc", "3", "--remove"], ["stats"],
    ["stats", "a", "--layers"], ["throttle", "a"], ["inflight"], ["why-stuck"], ["upgrade"], ["reactors"], ["version"],
    ["histogram", "get", "a"], ["histogram", "get", "a", "--qmp-json"], ["histogram", "set", "a"],
    ["histogram", "reset", "a"], ["attach", "/etc/passwd"], ["attach", "/etc/passwd", "--name", "a", "--persist"],
    ["detach", "a"], ["stats", "--watch", "0.05", "--count", "2"],
]  # top waits for a ublkd that answers: test_top_client


class Peer:
    """Gives the bytes of answer(request) to each line, or hangs up where there are none."""

    def __init__(self, answer):
        self.answer = answer
        if os.path.exists(PATH):
            os.unlink(PATH)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(PATH)
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client, client.makefile("r") as lines:
            try:
                for line in lines:
                    answer = self.answer(json.loads(line))
                    if answer is None:
                        return
                    client.sendall(answer)
                    if not answer.endswith(b"\n"):
                        return
            except OSError:
                pass


def fine(data):
    return json.dumps({"ok": True, "data": data}).encode() + b"\n"


number = failed = 0


def run(command):
    """The search for leaks takes longer than all else: each command and each peer has its turn, not each pair."""
    leaks = (COMMANDS.index(command) + number) % 7 == 0
    return subprocess.run([f"{BIN}/ublkctl", "--socket", PATH, *command], capture_output=True, text=True, timeout=120,
                          errors="replace", env={**os.environ, "ASAN_OPTIONS": f"detect_leaks={leaks:d}"})


def check(name, problems):
    global number, failed
    number += 1
    print(f"{'not ' if problems else ''}ok {number} - {name}", flush=True)
    failed += bool(problems)
    for problem in problems:
        print("# " + problem.replace("\n", "\n# "))


def judge(answer, refused, words=""):
    """Each command against a peer. refused: it must fail, with these words."""
    problems = []
    with Peer(answer):
        for command in COMMANDS:
            try:
                done = run(command)
            except subprocess.TimeoutExpired:
                problems.append(f"{command}: never ends")
                continue
            said = done.stdout + done.stderr
            if done.returncode not in (0, 1) or re.search(r"Sanitizer|runtime error|ASSERT|\(null\)", said):
                problems.append(f"{command}: exit code {done.returncode}\n{said[-800:]}")
            elif refused and (done.returncode != 1 or not re.search(words, said)):
                problems.append(f"{command}: exit code {done.returncode}, not {words}\n{said[-400:]}")
    return problems


def older(version):
    def answer(request):
        if request["command"] == "version":
            return fine({"version": version})
        return json.dumps({"ok": False, "error": f"ublkd {version} does not know the command", "version": version}
                          ).encode() + b"\n"
    return answer


def but_version(data):
    """What another version means by the same command."""
    return lambda request: fine({"version": "9.9.9"} if request["command"] == "version" else data)


COMMANDS.remove(["version"])
both = f"this is ublkctl {re.escape(OWN)} and the daemon is ublkd 0.0.1"
check("a ublkd that does not know the command: both versions", judge(older("0.0.1"), True, both))
with Peer(older(OWN)):
    check("of the same version: no word of versions", [] if "the daemon is" not in run(["list"]).stderr else ["told"])
strange = f"ublkctl {re.escape(OWN)} does not understand the answer; it is from ublkd 9.9.9"
for kind in (7, "text", None, True):
    check(f"data is {json.dumps(kind)}: both versions", judge(but_version(kind), True, strange))
check("data is a list of numbers", judge(but_version([1, 2]), True, strange))
check("data is another kind of container", judge(lambda r: fine(
    {"version": "9.9.9"} if r["command"] == "version" else {} if r["command"] in ("list", "reactors") else []),
    True, strange))
check("there is no data: both versions", judge(
    lambda r: fine({"version": "9.9.9"}) if r["command"] == "version" else b'{"ok":true}\n', True, strange))
COMMANDS.append(["version"])

empty = lambda r: fine([{}] if r["command"] in ("list", "reactors") else {})
check("all keys are missing", judge(empty, False))
for value in (None, [], "x", -1, 2**63 - 1, [{}], {"x": None}):
    keys = ("name id state path size_bytes backend queues depth devices options connections throttle time_ns pid left "
            "removed reactors requests ops layers buckets boundaries bins version pause_ms return cpu turns ids "
            "limits error errors read write driver users devices_dir config from_file").split()
    thing = {key: value for key in keys}
    check(f"all keys are {json.dumps(value)}", judge(
        lambda r, t=thing: fine([t] if r["command"] in ("list", "reactors") else t), False))
    nested = {"devices": [thing], "reactors": [thing], "left": [thing], "return": [thing], "time_ns": 1}
    check(f"... of what it holds", judge(
        lambda r, t=thing, n=nested: fine([t] if r["command"] in ("list", "reactors") else n), False))

cut = "truncated|exited before"
check("it hangs up", judge(lambda r: None, True, "exited before it answered|exited"))
check("it hangs up in the middle of an answer", judge(lambda r: b'{"ok":true,"data":[{"name":"a', True, cut))
check("an answer that is no JSON", judge(lambda r: b"HTTP/1.1 400 Bad Request\r\n\r\n", True, cut + "|not JSON|JSON"))
check("NUL bytes", judge(lambda r: b"\0" * 100 + b"\n", True, cut + "|JSON"))
check("a refusal without words", judge(lambda r: b'{"ok":false}\n', True, "without a reason"))
check("a refusal of other types", judge(
    lambda r: b'{"ok":false,"error":7,"errors":[1,{},null],"version":[]}\n', True, "without a reason"))
check("ok is no boolean", judge(lambda r: b'{"ok":"yes","data":{}}\n', True, "without a reason"))
check("a deep answer", judge(lambda r: b"[" * 100000 + b"\n", True, cut + "|JSON"))
print(f"1..{number}")
sys.exit(failed > 0)
