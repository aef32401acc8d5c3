#!/usr/bin/env python3
"""A client that shares memory with a device of ublkd, well or badly behaved: for guest_shared_memory.sh.

usage: shared_client.py hand SOCKET NAME KIND         hands over a descriptor of that kind; prints the answer
       shared_client.py check SOCKET NAME NODE FILE COUNT
           COUNT random direct reads and writes in shared memory; FILE is the storage below, "-": NODE is read
           back by another way. Exit code 0: every byte was where it belongs, and the daemon says that so many
           requests were in shared memory.
"""
import fcntl
import json
import mmap
import os
import socket
import sys

F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
MIB = 1 << 20
BLOCK = 512


def memory(size, sealed=True, flags=0):
    fd = os.memfd_create("shared", os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if sealed:
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    return fd


def temporary(folder):
    import tempfile  # takes long, and few need it: the same of random

    return tempfile.mkstemp(dir=folder)


def disk_file(size):
    fd, path = temporary("/mnt/ram")
    os.truncate(path, size)
    return fd


def write_only():
    fd, path = temporary("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp")
    os.truncate(path, MIB)
    os.close(fd)
    return os.open(path, os.O_WRONLY)


KINDS = {
    "sealed": lambda: [memory(MIB)],
    "unsealed": lambda: [memory(MIB, sealed=False)],
    "huge": lambda: [memory(2 * MIB, flags=os.MFD_HUGETLB)],
    "pipe": lambda: [os.pipe()[0]],
    "file": lambda: [disk_file(MIB)],
    "socket": lambda: [socket.socket(socket.AF_UNIX).detach()],
    "empty": lambda: [memory(0)],
    "odd": lambda: [memory(MIB + 1)],
    "writeonly": lambda: [write_only()],
    "larger": lambda: [memory(64 * MIB)],
    "gigantic": lambda: [memory((4 << 30) + 4096)],
    "none": lambda: [],
    "two": lambda: [memory(MIB), memory(MIB)],
}


class Daemon:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.stream = self.sock.makefile("rb")

    def ask(self, fds=(), **request):
        line = json.dumps(request).encode() + b"\n"
        if fds:
            socket.send_fds(self.sock, [line], list(fds))
        else:
            self.sock.sendall(line)
        return json.loads(self.stream.readline() or b'{"ok": false, "error": "dropped"}')

    def data(self, fds=(), **request):
        answer = self.ask(fds, **request)
        if not answer["ok"]:
            sys.exit(answer["error"])
        return answer["data"]

    def shared_nr(self, name):
        return self.data(command="stats", name=name)["devices"][0]["in_shared_memory"]


def hand(path, name, kind):
    print(json.dumps(Daemon(path).ask(KINDS[kind](), command="share", name=name)))


class Below:
    """What the storage holds, read by a way that has nothing to do with shared memory."""

    def __init__(self, node, file):
        self.fd = os.open(node if file == "-" else file, os.O_RDWR | (os.O_DIRECT if file == "-" else 0))
        self.private = mmap.mmap(-1, MIB)

    def read(self, at, size):
        part = memoryview(self.private)[:size]
        assert os.preadv(self.fd, [part], at) == size
        return bytes(part)

    def write(self, at, content):
        part = memoryview(self.private)[: len(content)]
        part[:] = content
        assert os.pwritev(self.fd, [part], at) == len(content)
        os.fsync(self.fd)


def check(path, name, node, file, count):
    import random

    daemon, below = Daemon(path), Below(node, file)
    fd = memory(4 * MIB)
    buf = memoryview(mmap.mmap(fd, 4 * MIB))
    buffer = daemon.data([fd], command="share", name=name)["buffer"]
    before = daemon.shared_nr(name)
    device = os.open(node, os.O_RDWR | os.O_DIRECT)
    for i in range(count):
        size = random.randrange(1, 512) * BLOCK if i % 4 == 0 else 4096
        where = random.randrange((4 * MIB - size) // BLOCK) * BLOCK
        at = random.randrange((8 * MIB - size) // BLOCK) * BLOCK
        content = os.urandom(size)
        before_it, behind = bytes(buf[:where][-64:]), bytes(buf[where + size :][:64])
        if i % 2:
            buf[where : where + size] = content
            assert os.pwritev(device, [buf[where : where + size]], at) == size
            assert below.read(at, size) == content, f"write {i}: {size} bytes at {at} from {where}"
        else:
            below.write(at, content)
            assert os.preadv(device, [buf[where : where + size]], at) == size
        assert bytes(buf[where : where + size]) == content, f"request {i}: {size} bytes at {at}, memory at {where}"
        assert bytes(buf[:where][-64:]) == before_it and bytes(buf[where + size :][:64]) == behind, f"beside {i}"
    served = daemon.shared_nr(name) - before
    daemon.data(command="unshare", name=name, buffer=str(buffer))
    print(f"{served} of {count} requests were in shared memory")
    # A request whose pages the block layer has put together across a border of the driver's ranges is copied.
    return served >= count * 9 // 10


if sys.argv[1] == "hand":
    hand(*sys.argv[2:])
else:
    sys.exit(not check(*sys.argv[2:6], int(sys.argv[6])))
