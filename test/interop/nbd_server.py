#!/usr/bin/env python3
"""An NBD server for tests, which keeps to the protocol until it is told not to.

    nbd_server.py (--unix PATH | --tcp [HOST:]PORT) --control PATH [--file PATH] [--set KEY=VALUE]... [--fault LINE]...

Newstyle with GO, structured replies, base:allocation, extended headers where set. The content is in
memory, or in a file that it is to survive in. The control socket takes one line per command and answers
each with one line, "ok ..." or "error: ...":

    set KEY=VALUE ...   see nbd_disk.py; what is told in a handshake counts from the next connection on
    fault LINE          one more fault, see nbd_misbehave.py; `fault none`: all forgotten
    stats               numbers as KEY=VALUE; `violations` counts what a client must not do
    kick                every connection is closed; a volatile cache is lost
    restart N           the volatile cache is lost, the N-th of the connections (from 0) closed; the others hear
                        nothing of it and get no answer any more
    down, up            the same and no more listening; listening again
    listen HOST:PORT    from now on there instead of where it was
    quit

One thread per connection. With --set volatile=1 content that was written, not flushed, is lost when
the last connection has ended.
"""

import argparse
import copy
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True  # the tree stays clean

from nbd_disk import Disk, Settings
from nbd_misbehave import REPLIES, Faults, Hangup
from nbd_wire import *


class Session:
    """One connection, from accept to its end, on its own thread."""

    def __init__(self, server, connection):
        self.server, self.socket = server, connection
        self.settings, self.faults, self.disk = copy.copy(server.settings), server.faults, server.disk
        self.structured = self.extended = self.forgotten = False
        self.meta = None
        self.sent, self.close_at, self.trickle = 0, None, False
        self.send_lock = threading.Lock()
        self.held, self.pending, self.answered = [], set(), None

    # ---- bytes ----

    def receive(self, length):
        data = self.input.read(length)
        if len(data) < length:
            raise Hangup("the client left")
        return data

    def send(self, data):
        with self.send_lock:
            if self.forgotten:
                return
            if self.close_at is not None and self.sent + len(data) >= self.close_at:
                self.socket.sendall(data[: self.close_at - self.sent])
                raise Hangup("close-at")
            self.sent += len(data)
            if self.trickle:
                for at in range(len(data)):
                    self.socket.sendall(data[at : at + 1])
            else:
                self.socket.sendall(data)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def wait_for_end(self):
        """Says nothing, hears nothing, until the client has gone."""
        while self.socket.recv(65536):
            pass
        raise Hangup("silent")

    def run(self):
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self.input = self.socket.makefile("rb", 256 << 10)
            self.on_accept()
            self.handshake()
            self.serve()
        except (Hangup, OSError):
            pass
        except ValueError as error:
            self.server.violation(str(error))
        finally:
            self.close()
            self.socket.close()
            self.server.ended(self)

    # ---- handshake ----

    def on_accept(self):
        fault = self.faults.take("accept")
        if fault is None:
            return
        if fault.name == "accept-close":
            raise Hangup(fault.name)
        if fault.name == "accept-silent":
            self.wait_for_end()
        if fault.name == "greeting-bad":
            self.send(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
            self.wait_for_end()
        if fault.name == "greeting-oldstyle":
            self.send(GREETING_MAGIC + struct.pack(">QQI", OLDSTYLE_MAGIC, 1 << 20, 1) + bytes(124))
            self.wait_for_end()
        self.close_at = fault.bytes
        if self.close_at == 0:
            raise Hangup(fault.name)

    def handshake(self):
        self.send(GREETING_MAGIC + struct.pack(">QH", OPTION_MAGIC, 3))
        (client_flags,) = struct.unpack(">I", self.receive(4))
        self.zeroes = b"" if client_flags & 2 else bytes(124)
        self.is_tls = False
        while True:
            magic, option, length = struct.unpack(">QII", self.receive(16))
            if magic != OPTION_MAGIC:
                raise ValueError("an option without its magic")
            data = self.receive(length)
            fault = self.faults.take("option", option=option)
            if fault is not None:
                self.misbehave_option(fault, option)
            elif self.option(option, data):
                return

    def say(self, option, kind, data=b""):
        self.send(option_reply(option, kind, data))

    def misbehave_option(self, fault, option):
        if fault.name == "option-endless":
            while True:
                self.say(option, REP_INFO if option == GO else REP_SERVER, struct.pack(">HI", 900, 0))
        if fault.name == "option-silent":
            self.wait_for_end()
        if fault.name == "option-magic":
            self.send(struct.pack(">QIII", 0x1234, option, ACK, 0))
        elif fault.name == "option-other":
            self.say(option ^ 1, ACK)
        elif fault.name == "option-huge":
            self.send(struct.pack(">QIII", OPTION_REPLY_MAGIC, option, REP_INFO, 2**32 - 1))
        else:
            kinds = {"tls-refused": POLICY, "tls-required": TLS_REQD, "export-unknown": UNKNOWN,
                     "shutting-down": SHUTDOWN}  # fmt: skip
            self.say(option, kinds[fault.name], b"on purpose")
            return
        self.wait_for_end()

    def option(self, option, data):
        """Answers one; True when transmission begins."""
        settings = self.settings
        if settings.tls and not self.is_tls and option not in (STARTTLS, ABORT):
            self.say(option, TLS_REQD)
        elif option == EXPORT_NAME:
            if data.decode() != settings.export:
                raise Hangup("unknown export")
            self.send(struct.pack(">QH", settings.size, settings.transmission_flags()) + self.zeroes)
            return True
        elif option in (GO, INFO) and settings.go:
            return self.go(option, data)
        elif option == STRUCTURED and settings.structured and not data:
            self.structured = True
            self.server.count("structured")
            self.say(option, ACK)
        elif option == EXTENDED and settings.extended and not data:
            self.extended = True
            self.server.count("extended")
            self.say(option, ACK)
        elif option in (SET_META, LIST_META) and settings.meta and (self.structured or self.extended):
            self.contexts(option, data)
        elif option == LIST:
            name = settings.export.encode()
            self.say(option, REP_SERVER, struct.pack(">I", len(name)) + name + settings.description.encode())
            self.say(option, ACK)
        elif option == STARTTLS and settings.tls and not self.is_tls:
            self.start_tls()
        elif option == ABORT:
            self.say(option, ACK)
            raise Hangup("abort")
        else:
            self.say(option, UNSUP)
        return False

    def go(self, option, data):
        settings = self.settings
        (length,) = struct.unpack(">I", data[:4])
        if data[4 : 4 + length].decode() != settings.export:
            self.say(option, UNKNOWN, b"no such export")
            return False
        self.say(option, REP_INFO, struct.pack(">HQH", INFO_EXPORT, settings.size, settings.transmission_flags()))
        if settings.min_block:
            blocks = (settings.min_block, settings.preferred_block or 4096, settings.max_block or 32 << 20)
            self.say(option, REP_INFO, struct.pack(">HIII", INFO_BLOCK_SIZE, *blocks))
        self.say(option, ACK)
        return option == GO

    def contexts(self, option, data):
        (length,) = struct.unpack(">I", data[:4])
        at = 4 + length
        (nr,) = struct.unpack(">I", data[at : at + 4])
        names, at = [], at + 4
        for _ in range(nr):
            (length,) = struct.unpack(">I", data[at : at + 4])
            names.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        if b"base:allocation" in names or b"base:" in names or (option == LIST_META and nr == 0):
            self.say(option, REP_META, struct.pack(">I", 0 if option == LIST_META else 1) + b"base:allocation")
            if option == SET_META:
                self.meta = 1
        self.say(option, ACK)

    def start_tls(self):
        import ssl  # takes its time, and is rarely wanted

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.settings.tls)
        self.say(STARTTLS, ACK)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.input = self.socket.makefile("rb", 256 << 10)
        self.is_tls, self.structured, self.extended, self.meta = True, False, False, None

    # ---- transmission ----

    def serve(self):
        self.limits = self.settings.size, self.settings.transmission_flags()
        if self.faults.take("serve"):
            raise Hangup("serve-close")
        while True:
            if self.held:
                self.release_held()
            head = self.receive(32 if self.extended else 28)
            request = Request(head, self.structured, self.extended)
            self.server.count(request.name)
            if request.cmd == DISC:
                if self.pending:
                    self.server.violation("DISC before all is answered")
                raise Hangup("disc")
            if request.cookie in self.pending:
                self.server.violation(f"cookie {request.cookie:#x} is in use")
            self.pending.add(request.cookie)
            if self.forgotten:
                self.wait_for_end()
            self.one(request)

    def one(self, request):
        fault = self.faults.take("request", request)
        kind = fault.name if fault else None
        if kind in ("early", "early-deaf"):
            self.answer(request)
        if kind in ("deaf", "early-deaf"):
            self.server.sleep()
        if kind in ("early-error", "early-error-hangup"):
            self.answer(request, fault.error)
            time.sleep(fault.seconds)
        if kind in ("hangup", "early-error-hangup"):
            raise Hangup(kind)
        payload = self.receive(request.length) if request.cmd == WRITE else b""
        if kind == "early":
            self.disk.write(request.offset, payload, request.flags & FUA)
        elif kind == "error":
            self.answer(request, fault.error)
        elif kind != "early-error":
            self.answer(request, *self.execute(request, payload))

    def refusal(self, request):
        """Why no client may ask for this, or None."""
        size, offered = self.limits
        settings = self.settings
        needs = {FLUSH: SEND_FLUSH, TRIM: SEND_TRIM, WRITE_ZEROES: SEND_WRITE_ZEROES, CACHE: SEND_CACHE}
        needed = needs.get(request.cmd, 0)
        if request.flags & FUA:
            needed |= SEND_FUA
        if request.flags & FAST_ZERO:
            needed |= SEND_FAST_ZERO
        if request.flags & DF:
            needed |= SEND_DF
        if needed & ~offered:
            return "what was not offered"
        if request.cmd == BLOCK_STATUS and self.meta is None:
            return "no context was negotiated"
        if request.cmd == FLUSH:
            return "flush of a range" if request.offset or request.length else None
        if request.length == 0 or request.offset + request.length > size:
            return f"{request.length} bytes at {request.offset} of {size}"
        block = settings.min_block or 1
        if request.offset % block or request.length % block:
            return "a part of a block"
        limit = settings.max_block or 32 << 20
        if request.cmd in (READ, WRITE) and request.length > limit:
            return "too many bytes"
        return None

    def execute(self, request, payload):
        """(error, data) of the reply."""
        why = self.refusal(request)
        if why:
            self.server.violation(f"{request.name} {why}")
            return ERRORS["EINVAL"], b""
        if request.cmd in (WRITE, TRIM, WRITE_ZEROES) and self.limits[1] & READ_ONLY:
            return ERRORS["EPERM"], b""
        if request.cmd == READ:
            return 0, self.disk.read(request.offset, request.length)
        if request.cmd == WRITE:
            self.disk.write(request.offset, payload, request.flags & FUA)
        elif request.cmd in (TRIM, WRITE_ZEROES):
            self.disk.write(request.offset, bytes(request.length), request.flags & FUA)
        elif request.cmd == FLUSH:
            self.disk.flush()
        elif request.cmd == BLOCK_STATUS:
            return 0, self.status(request)
        return 0, b""

    def status(self, request):
        extents = self.disk.extents(request.offset, request.length, request.flags & REQ_ONE)
        if request.extended:
            return struct.pack(">II", 1, len(extents)) + b"".join(struct.pack(">QQ", *e) for e in extents)
        return struct.pack(">I", 1) + b"".join(struct.pack(">II", *e) for e in extents)

    # ---- replies ----

    def answer(self, request, error=0, data=b""):
        fault = self.faults.take("reply", request)
        self.pending.discard(request.cookie)
        if fault is None:
            reply = request.reply(error, data)
            if self.held:
                self.held.append(reply)
            else:
                self.send(reply)
        elif REPLIES[fault.name][1]:
            self.send(REPLIES[fault.name][1](request, error, data, fault))
        else:
            self.misbehave_reply(fault, request, error, data)
        self.answered = request.cookie

    def misbehave_reply(self, fault, request, error, data):
        reply = request.reply(error, data)
        if fault.name == "stall":
            self.pending.add(request.cookie)
        elif fault.name == "slow":
            threading.Timer(fault.seconds, self.send_late, (reply,)).start()
        elif fault.name == "reorder":
            self.held.append(reply)
        elif fault.name == "trickle":
            self.trickle = True
            self.send(reply)
            self.trickle = False
        elif fault.name == "half-silent":
            self.send(reply[: len(reply) - len(data) // 2])
            self.wait_for_end()
        elif fault.name == "half-header":
            self.send(reply[:7])
            raise Hangup(fault.name)
        elif fault.name == "half-payload":
            self.send(reply[: len(reply) - len(data) // 2])
            raise Hangup(fault.name)
        elif fault.name == "cookie-free":
            request.cookie = 0 if self.answered is None else self.answered
            self.send(request.reply(error, data))
        elif fault.name == "error-endless":
            while True:
                self.send(error_chunk(request, fault.error, b"once more", 0))

    def send_late(self, reply):
        try:
            self.send(reply)
        except (Hangup, OSError):
            self.close()

    def release_held(self):
        """When eight wait, or the client has nothing more to say for now: in any order."""
        if len(self.held) < 8 and select.select([self.socket], [], [], 0.002)[0]:
            return
        held, self.held = self.held, []
        random.shuffle(held)
        for reply in held:
            self.send(reply)


class Server:
    def __init__(self, args):
        self.settings, self.faults = Settings(), Faults()
        self.settings.change(args.set)
        for line in args.fault:
            self.faults.add(line)
        self.disk = Disk(args.file, self.settings)
        self.args, self.lock, self.sessions = args, threading.Lock(), []
        self.listener = None
        self.counts = dict.fromkeys(("connections", "violations", "structured", "extended") + COMMANDS, 0)
        self.last_violation = ""

    def count(self, name):
        with self.lock:
            self.counts[name] += 1

    def violation(self, text):
        self.count("violations")
        self.last_violation = text.replace(" ", "-")
        print(f"nbd_server.py: the client: {text}", file=sys.stderr, flush=True)

    def sleep(self):
        while True:
            time.sleep(1000)

    def ended(self, session):
        with self.lock:
            self.sessions.remove(session)
            last = not self.sessions
        if last and self.settings.volatile:
            self.disk.lose_cache()

    # ---- listening ----

    def up(self):
        if self.listener:
            return
        if self.args.unix:
            listener = listen_unix(self.args.unix)
        else:
            host, _, port = self.args.tcp.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host.strip("[]") or "127.0.0.1", int(port)), family=family, backlog=64)
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.count("connections")
            session = Session(self, connection)
            with self.lock:
                self.sessions.append(session)
            threading.Thread(target=session.run, daemon=True).start()

    def kick(self):
        with self.lock:
            sessions = list(self.sessions)
        for session in sessions:
            session.close()

    def restart(self, which):
        """As one connection after the other finds it out."""
        with self.lock:
            sessions = list(self.sessions)
        for session in sessions:
            session.forgotten = True
        self.disk.lose_cache()
        sessions[which].close()

    def down(self):
        listener, self.listener = self.listener, None
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.kick()

    # ---- control ----

    def stats(self):
        with self.lock:
            numbers = dict(self.counts, open=len(self.sessions), struck=self.faults.struck, left=self.faults.left())
        text = " ".join(f"{key}={value}" for key, value in numbers.items())
        return text + (f" last_violation={self.last_violation}" if self.last_violation else "")

    def command(self, line):
        word, _, rest = line.partition(" ")
        if word == "set":
            self.settings.change(rest.split())
        elif word == "fault" and rest == "none":
            self.faults.clear()
        elif word == "fault":
            self.faults.add(rest)
        elif word == "stats":
            return self.stats()
        elif word == "listen":
            self.down()
            self.args.unix, self.args.tcp = None, rest
            self.up()
        elif word == "restart":
            self.restart(int(rest))
        elif word in ("kick", "down", "up"):
            getattr(self, word)()
        elif word == "quit":
            os._exit(0)
        else:
            raise ValueError(f"no command is called {word!r}")
        return ""

    def control(self, connection):
        with connection, connection.makefile("rw") as stream:
            for line in stream:
                try:
                    answer = "ok " + self.command(line.strip())
                except (ValueError, KeyError, OSError) as error:
                    answer = f"error: {error}"
                stream.write(answer.rstrip() + "\n")
                stream.flush()

    def run(self):
        self.up()
        listener = listen_unix(self.args.control)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.control, args=(connection,), daemon=True).start()


def listen_unix(path):
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    return listener


def main():
    parser = argparse.ArgumentParser(description="an NBD server that misbehaves when told to")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--unix", metavar="PATH")
    where.add_argument("--tcp", metavar="[HOST:]PORT")
    parser.add_argument("--control", metavar="PATH", required=True)
    parser.add_argument("--file", metavar="PATH")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument("--fault", metavar="LINE", action="append", default=[])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        server = Server(args)
    except (ValueError, OSError) as error:
        sys.exit(f"nbd_server.py: {error}")
    server.run()


if __name__ == "__main__":
    main()
