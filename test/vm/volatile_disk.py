#!/usr/bin/env python3
"""A disk with a volatile write cache, for QEMU: an NBD server over a raw file.

    volatile_disk.py SOCKET FILE SEED

Writes stay in this process until a flush, or until the disk happens to take one of them: single
sectors, in any order, as a seed has it. FUA goes through at once. Whoever kills this process cuts the
disk's power: what was not flushed is lost, but for the sectors that were taken. Serves one client,
then ends, without writing what it still has. As of NBD's proto.md, fixed newstyle.
"""

import os
import random
import socket
import struct
import sys

SECTOR = 512
OPTION_MAGIC, REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
OPT_EXPORT_NAME, OPT_ABORT, OPT_GO = 1, 2, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, 2**31 + 1
FLAGS = 1 << 0 | 1 << 2 | 1 << 3  # has flags, flush, FUA
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
EINVAL = 22


class Disk:
    def __init__(self, path, seed):
        self.fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.fd).st_size
        self.cache = {}  # offset -> sector
        self.random = random.Random(seed)

    def read(self, offset, length):
        data = bytearray(os.pread(self.fd, length, offset))
        for at in range(0, length, SECTOR):
            sector = self.cache.get(offset + at)
            if sector:
                data[at : at + SECTOR] = sector
        return data

    def write(self, offset, data, fua):
        for at in range(0, len(data), SECTOR):
            if fua:
                self.cache.pop(offset + at, None)
            else:
                self.cache[offset + at] = data[at : at + SECTOR]
                if self.random.random() < 0.1:
                    self.take(offset + at)
        if fua:
            os.pwrite(self.fd, data, offset)

    def take(self, offset):
        os.pwrite(self.fd, self.cache.pop(offset), offset)

    def flush(self):
        for offset in list(self.cache):
            self.take(offset)


class Client:
    def __init__(self, connection, disk):
        self.connection, self.disk = connection, disk

    def receive(self, length):
        data = bytearray()
        while len(data) < length:
            piece = self.connection.recv(length - len(data))
            if not piece:
                sys.exit(0)
            data += piece
        return bytes(data)

    def unpack(self, format):
        return struct.unpack(format, self.receive(struct.calcsize(format)))

    def answer_option(self, option, kind, data=b""):
        head = struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data))
        self.connection.sendall(head + data)

    def handshake(self):
        self.connection.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION_MAGIC, 3))
        (no_zeroes,) = self.unpack(">I")
        while True:
            magic, option, length = self.unpack(">QII")
            self.receive(length)
            size_flags = struct.pack(">QH", self.disk.size, FLAGS)
            if option == OPT_GO:
                self.answer_option(option, REP_INFO, struct.pack(">H", 0) + size_flags)
                self.answer_option(option, REP_ACK)
                return
            if option == OPT_EXPORT_NAME:
                self.connection.sendall(size_flags + (b"" if no_zeroes & 2 else bytes(124)))
                return
            if option == OPT_ABORT:
                sys.exit(0)
            self.answer_option(option, REP_ERR_UNSUP)

    def serve(self):
        while True:
            magic, flags, kind, handle, offset, length = self.unpack(">IHHQQI")
            data, error = b"", 0
            if kind == READ:
                data = self.disk.read(offset, length)
            elif kind == WRITE:
                self.disk.write(offset, self.receive(length), flags & FUA)
            elif kind == FLUSH:
                self.disk.flush()
            elif kind == DISCONNECT:
                return
            else:
                error = EINVAL
            self.connection.sendall(struct.pack(">IIQ", 0x67446698, error, handle) + data)


def main():
    path, file, seed = sys.argv[1:]
    disk = Disk(file, int(seed))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    client = Client(listener.accept()[0], disk)
    client.handshake()
    client.serve()


main()
