#!/usr/bin/env python3
"""ublkctl cache warm at a terminal, against a ublkd that is played: how far it is, its end, and ^C. Prints TAP.
Usage: cache.py BIN_FOLDER"""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True  # the tree stays clean
import tap  # noqa: E402

BIN = os.path.realpath(sys.argv[1])
PATIENCE = 60
tmp = tempfile.TemporaryDirectory(prefix="ublkd-cache.")
SOCKET = os.path.join(tmp.name, "socket")
TOTAL = 1 << 30


class Daemon:
    """Is warming until `finish`; a client that leaves before is noted."""

    def __init__(self):
        self.looks, self.enough = 0, threading.Event()
        self.finish, self.left = threading.Event(), threading.Event()
        self.refusal = None
        if os.path.exists(SOCKET):
            os.unlink(SOCKET)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(SOCKET)
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            client = self.listener.accept()[0]
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        with client, client.makefile("r") as lines:
            request = json.loads(lines.readline())
            if request["action"] == "stats":
                self.looks += 1
                job = {"action": "warm", "node": "a", "total_bytes": TOTAL, "fetched_bytes": self.looks * (TOTAL // 8),
                       "present_bytes": TOTAL // 8, "passed_bytes": 0}
                answer = {"ok": True, "data": {"name": "a", "caches": [], "command": job}}
                if self.looks == 3:
                    self.enough.set()
            else:
                client.settimeout(0.05)
                while not self.finish.is_set():
                    try:
                        if client.recv(1) == b"":
                            self.left.set()
                            return
                    except TimeoutError:
                        pass
                answer = {"ok": True, "data": {"total_bytes": TOTAL, "fetched_bytes": 7 * (TOTAL // 8),
                                               "present_bytes": TOTAL // 8, "passed_bytes": 0, "full": False}}
                if self.refusal:
                    answer = {"ok": False, "error": self.refusal}
            client.sendall(json.dumps(answer).encode() + b"\n")


def start(*options, terminal=True):
    """ublkctl, and what reads its output."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    program = subprocess.Popen([f"{BIN}/ublkctl", "--socket", SOCKET, "cache", "warm", "a", *options],
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.STDOUT)
    os.close(theirs)
    return program, ours


def rest(ours):
    """All that it has printed, until its end."""
    text = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # a terminal whose other end is closed
            break
        if not more:
            break
        text += more
    os.close(ours)
    return text.decode()


def check(fn):
    tap.run(fn, Daemon())


@check
def progress(daemon):
    """at a terminal it says how far it is, in one line, and then how it ended"""
    program, ours = start()
    assert daemon.enough.wait(PATIENCE)
    daemon.finish.set()
    assert program.wait(PATIENCE) == 0
    text = rest(ours)
    assert "256MiB of 1GiB, 25 %" in text and "384MiB of 1GiB, 38 %" in text, repr(text)
    assert re.search(r"\r\033\[K896MiB fetched, 128MiB there already\r?\n$", text), repr(text)
    assert text.count("\n") == 1, repr(text)


@check
def no_terminal(daemon):
    """elsewhere only how it ended"""
    for options in ([], ["--json"]):
        daemon.finish.clear()
        program, ours = start(*options, terminal=False)
        try:
            program.wait(1.5)
            raise AssertionError("it does not wait")
        except subprocess.TimeoutExpired:
            daemon.finish.set()
        assert program.wait(PATIENCE) == 0 and daemon.looks == 0
        text = rest(ours)
        assert ("fetched_bytes" in text) == bool(options) and "\033" not in text and "%" not in text, repr(text)


@check
def refusal(daemon):
    """an error stands in a line of its own"""
    daemon.refusal = "the store has failed"
    program, ours = start()
    assert daemon.enough.wait(PATIENCE)
    daemon.finish.set()
    assert program.wait(PATIENCE) == 1
    text = rest(ours)
    assert re.search(r"\r\033\[Kublkctl: the store has failed\r?\n$", text), repr(text)


@check
def interrupted(daemon):
    """^C closes the connection, by which ublkd knows"""
    program, ours = start()
    assert daemon.enough.wait(PATIENCE)
    program.send_signal(signal.SIGINT)
    assert program.wait(PATIENCE) == -signal.SIGINT
    assert daemon.left.wait(PATIENCE), "the connection is open"
    rest(ours)


sys.exit(tap.end())
