#!/usr/bin/env python3
"""An NBD server that loses its volatile cache on command, and goes on as if it had been started again.

    forgetful_server.py SOCKET FILE FOLDER

Writes stay in memory until a FLUSH (FUA goes through). A file in FOLDER is a command, taken away when it is obeyed:

    die             at the next request all that is not flushed is lost, and all connections are cut
    die-at-flush    the same at the next FLUSH, which is not answered

and `slow` makes each write wait for 0.4 s, for as long as it is there. FOLDER/log has a line for each write, FLUSH and
loss. Several connections share the cache (multi-conn). As of NBD's proto.md, fixed newstyle.
"""

import os
import socket
import struct
import sys
import threading
import time

SECTOR = 512
OPTION_MAGIC, REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
OPT_EXPORT_NAME, OPT_ABORT, OPT_INFO, OPT_GO = 1, 2, 6, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, 2**31 + 1
# has flags, flush, FUA, trim, write zeroes, multi-conn
FLAGS = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8
READ, WRITE, DISCONNECT, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FUA = 1


class Server:
    def __init__(self, path, folder):
        self.fd = os.open(path, os.O_RDWR)
        self.bytes = os.lseek(self.fd, 0, os.SEEK_END)
        self.folder = folder
        self.log = open(os.path.join(folder, "log"), "a", buffering=1)
        self.lock = threading.Lock()
        self.cache, self.connections = {}, set()

    def takes(self, command):
        try:
            os.unlink(os.path.join(self.folder, command))
            return True
        except FileNotFoundError:
            return False

    def lose(self):
        self.log.write(f"lost {len(self.cache)}\n")
        self.cache.clear()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def flush(self):
        for at in sorted(self.cache):
            os.pwrite(self.fd, self.cache[at], at)
        self.log.write(f"flush {len(self.cache)}\n")
        self.cache.clear()

    def put(self, at, data, through):
        for i in range(0, len(data), SECTOR):
            self.cache[at + i] = data[i:i + SECTOR]
        if through:
            os.pwrite(self.fd, data, at)
            for i in range(0, len(data), SECTOR):
                del self.cache[at + i]

    def get(self, at, length):
        data = bytearray(os.pread(self.fd, length, at))
        for i in range(0, length, SECTOR):
            data[i:i + SECTOR] = self.cache.get(at + i, data[i:i + SECTOR])
        return bytes(data)


def receive(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def negotiate(server, connection):
    """False: the client wants no more."""
    connection.sendall(b"NBDMAGIC" + struct.pack(">QH", OPTION_MAGIC, 1))
    receive(connection, 4)
    while True:
        _, option, length = struct.unpack(">QII", receive(connection, 16))
        receive(connection, length)

        def reply(kind, data=b""):
            connection.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)
        if option in (OPT_INFO, OPT_GO):
            reply(REP_INFO, struct.pack(">HQH", 0, server.bytes, FLAGS))
            reply(REP_ACK)
        elif option == OPT_ABORT:
            reply(REP_ACK)
            return False
        elif option == OPT_EXPORT_NAME:
            connection.sendall(struct.pack(">QH", server.bytes, FLAGS) + bytes(124))
        else:
            reply(REP_ERR_UNSUP)
        if option in (OPT_GO, OPT_EXPORT_NAME):
            return True


def serve_one(server, connection):
    """False: it was the last one."""
    _, flags, kind, handle, at, length = struct.unpack(">IHHQQI", receive(connection, 28))
    data = receive(connection, length) if kind == WRITE else b""
    if kind == WRITE and os.path.exists(os.path.join(server.folder, "slow")):
        time.sleep(0.4)
    with server.lock:
        if server.takes("die") or (kind == FLUSH and server.takes("die-at-flush")):
            server.lose()
            return False
        answer = server.get(at, length) if kind == READ else b""
        if kind == WRITE:
            server.log.write(f"write {at} {length}\n")
            server.put(at, data, flags & FUA)
        elif kind == FLUSH:
            server.flush()
        elif kind in (TRIM, WRITE_ZEROES):
            server.put(at, bytes(length), flags & FUA)
    if kind == DISCONNECT:
        return False
    connection.sendall(struct.pack(">IIQ", 0x67446698, 0, handle) + answer)
    return True


def serve(server, connection):
    server.connections.add(connection)
    try:
        if negotiate(server, connection):
            while serve_one(server, connection):
                pass
    except (EOFError, OSError):
        pass
    finally:
        server.connections.discard(connection)
        connection.close()


def main():
    path, disk, folder = sys.argv[1:]
    server = Server(disk, folder)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(16)
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=serve, args=(server, connection), daemon=True).start()


if __name__ == "__main__":
    main()
