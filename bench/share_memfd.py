#!/usr/bin/env python3
"""Shares a sealed memfd with a device of ublkd, prints a path by which other programs can map it, and holds it.

usage: share_memfd.py SOCKET DEVICE BYTES
"""
import fcntl
import json
import os
import signal
import socket
import sys

F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2

fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, int(sys.argv[3]))
fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
ublkd = socket.socket(socket.AF_UNIX)
ublkd.connect(sys.argv[1])
socket.send_fds(ublkd, [json.dumps({"command": "share", "name": sys.argv[2]}).encode() + b"\n"], [fd])
answer = json.loads(ublkd.makefile().readline())
if not answer["ok"]:
    sys.exit(answer["error"])
print(f"/proc/{os.getpid()}/fd/{fd}", flush=True)
signal.pause()
