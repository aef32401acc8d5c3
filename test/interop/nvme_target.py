#!/usr/bin/env python3
"""An NVMe/TCP target for tests, which keeps to the protocol until it is told not to.

Serves a discovery controller and one or more subsystems, in memory or in a file. When it listens it says
"ready HOST:PORT ..." in one line. The control socket takes one command per line and answers each with one
line of JSON, {"ok": true, ...} or {"ok": false, "error": "..."}:

    set KEY VALUE       a setting or a fault, see below; `set KEY=VALUE` is as good
    faults none         no fault is left
    stats               numbers; `violations` counts what a host must not do, `bugs` this program's own
    wait STAT N [S]     until that number (commands.write for one of `commands`) is N at least, S seconds (10)
    log                 the last commands, oldest first
    resize BYTES        of the first namespace of each subsystem, and the event; 0: it goes
    ana INDEX STATE     of the address with that index: optimized, non-optimized, inaccessible, persistent-loss,
                        change; and the event
    notify KIND         the event alone: namespace, ana or discovery
    drop [N]            all connections end, or the N-th of those in `queues` of stats, from 0
    crash               all connections end; with volatile=1 what was not flushed is lost
    stop-listening [I]  nobody listens, at one address or at all
    listen [I]          again
    pause, resume       nothing is answered meanwhile
    read OFFSET LENGTH  content of the first namespace, in hexadecimal
    quit

One thread. A host that breaks the protocol gets a C2HTermReq and is counted.
"""

import argparse
import asyncio
import collections
import json
import os
import signal
import sys

sys.dont_write_bytecode = True  # the tree stays clean

from nvme_connection import Connection
from nvme_controller import Controller
from nvme_disk import Namespace
from nvme_settings import Settings, keys_help
from nvme_wire import *


class Port:
    """An address, with an ANA state of its own."""

    def __init__(self, index, where):
        host, _, port = where.rpartition(":")
        self.index, self.host, self.number = index, host.strip("[]") or "127.0.0.1", int(port)
        self.server, self.ana, self.ana_changes = None, 1, 0

    def __str__(self):
        return f"[{self.host}]:{self.number}" if ":" in self.host else f"{self.host}:{self.number}"


class Target:
    def __init__(self, args):
        self.settings, self.args = Settings(), args
        for line in args.set:
            self.settings.change(line)
        if args.block:
            self.settings.block = args.block
        self.subsystems = {nqn: self.make_subsystem(nqn, args.file if number == 0 else None)
                           for number, nqn in enumerate(args.subsystem)}  # fmt: skip
        self.ports = [Port(index, where) for index, where in enumerate(args.listen)]
        self.running = asyncio.Event()
        self.running.set()
        self.connections, self.controllers, self.generation, self.next_cntlid, self.unlisted = [], {}, 1, 1, 0
        self.numbers, self.commands, self.statuses = collections.Counter(), collections.Counter(), collections.Counter()
        self.log, self.terms, self.last_violation = collections.deque(maxlen=256), collections.deque(maxlen=16), ""
        self.ended = asyncio.Event()

    def make_subsystem(self, nqn, path):
        if not is_nqn(nqn) or nqn == DISCOVERY_NQN:
            raise ValueError(f"no NQN of a subsystem: {nqn!r}")
        namespaces = [Namespace(self.settings, nqn, index, self.args.size, path if index == 0 else None)
                      for index in range(self.settings.namespaces)]  # fmt: skip
        return namespaces

    # ---- numbers ----

    def count(self, key, by=1):
        self.numbers[key] += by

    def most(self, key, value):
        self.numbers[key] = max(self.numbers[key], value)

    def violation(self, words):
        self.count("violations")
        self.last_violation = words
        print(f"nvme_target.py: the host: {words}", file=sys.stderr, flush=True)

    def count_command(self, command, qid):
        self.commands[command.name] += 1
        if command.data:
            self.count("in_capsule_commands")
            self.count("in_capsule_bytes", len(command.data))
        if qid and command.kind in (WRITE, WRITE_ZEROES) and command.fua:
            self.count("fua")
        command.row = {"qid": qid, "cid": command.cid, "name": command.name, "nsid": command.nsid,
                       "bytes": command.length, "in_capsule": len(command.data), "status": None}  # fmt: skip
        if qid and command.kind in (READ, WRITE, WRITE_ZEROES):
            command.row |= {"lba": command.lba, "blocks": command.blocks, "fua": command.fua}
        self.log.append(command.row)

    def finished(self, command, status):
        command.row["status"] = status
        if status:
            self.statuses[f"{command.name} {status & 0x7FF:#x}"] += 1

    def bytes_until_cut(self, connection, length):
        """How many of so many are still sent; None: all, and the connection stays."""
        s = self.settings
        if 0 < s.cut_after <= length:
            left, s.cut_after = s.cut_after, 0
            return left
        s.cut_after -= length if s.cut_after else 0
        if s.cut_each and connection.sent + length >= s.cut_each:
            return max(0, s.cut_each - connection.sent)
        return None

    # ---- connections and controllers ----

    async def accept(self, port, reader, writer):
        connection = Connection(self, port, reader, writer)
        self.connections.append(connection)
        self.count("connections")
        await connection.run()

    def forget(self, connection):
        self.connections.remove(connection)
        controller = connection.controller
        if not controller:
            return
        controller.queues.pop(connection.qid, None)
        if connection.qid == 0:
            self.controllers.pop(controller.cntlid, None)
            controller.end()

    def new_controller(self, connection, nqn, host_nqn, cntlid, kato_ms):
        if cntlid != 0xFFFF:
            raise Refused(CONNECT_PARAMETER | DNR, 1 << 16 | 16)
        while self.next_cntlid in self.controllers:
            self.next_cntlid = self.next_cntlid % 0xFFEF + 1
        controller = Controller(self, connection, nqn, host_nqn, self.next_cntlid, kato_ms)
        self.controllers[self.next_cntlid] = controller
        self.next_cntlid = self.next_cntlid % 0xFFEF + 1
        self.count("controllers_made")
        return controller

    def discovery_entries(self):
        return [(port.index + 1, port.host, port.number, nqn)
                for nqn in self.subsystems for port in self.ports if port.server][self.unlisted :]  # fmt: skip

    def notice(self, kind, port=None):
        for controller in list(self.controllers.values()):
            if (kind == EVENT_DISCOVERY) == controller.is_discovery and port in (None, controller.connection.port):
                controller.notice(kind)

    def notice_changed(self, index):
        for controller in self.controllers.values():
            for ns in controller.namespaces[index : index + 1]:
                controller.changed.add(ns.nsid)
        self.notice(EVENT_NAMESPACE)

    # ---- listening ----

    async def listen(self, port):
        if port.server:
            return
        port.server = await asyncio.start_server(lambda *streams: self.accept(port, *streams), port.host, port.number,
                                                 limit=1 << 20, backlog=64)  # fmt: skip
        port.number = port.server.sockets[0].getsockname()[1]

    def stop_listening(self, port):
        server, port.server = port.server, None
        if server:
            server.close()

    def some_ports(self, words):
        return [self.ports[int(words[0])]] if words else self.ports

    async def relisten(self, words, up):
        for port in self.some_ports(words):
            if up:
                await self.listen(port)
            else:
                self.stop_listening(port)
        self.generation += 1
        self.notice(EVENT_DISCOVERY)

    # ---- control ----

    def stats(self):
        open_queues = [connection.qid for connection in self.connections]
        keys = ("connections violations bugs bytes_sent bytes_received in_capsule_commands in_capsule_bytes fua "
                "r2t_sent c2h_sent h2c_received responses header_digest_errors data_digest_errors term_sent "
                "term_received events_sent kato_expired shutdowns small_outside_capsule most_outstanding "
                "controllers_made ana_refused").split()  # fmt: skip
        return {**{key: self.numbers[key] for key in keys}, "open": len(open_queues), "queues": open_queues,
                "controllers": len(self.controllers), "commands": dict(self.commands), "statuses": dict(self.statuses),
                "terms": list(self.terms), "last_violation": self.last_violation, "struck": self.settings.struck,
                "waiting": self.settings.waiting()}  # fmt: skip

    async def wait(self, key, want, seconds="10"):
        end = asyncio.get_running_loop().time() + float(seconds)
        group, _, name = key.rpartition(".")
        while True:
            stats = self.stats()
            value = (stats[group] if group else stats).get(name, 0)
            if value >= int(want):
                return {name: value}
            if asyncio.get_running_loop().time() > end:
                raise ValueError(f"{key} is {value} after {seconds} seconds")
            await asyncio.sleep(0.002)

    def drop(self, words):
        for connection in [self.connections[int(words[0])]] if words else list(self.connections):
            connection.close()

    def resume(self):
        """What keeps alive was not read meanwhile."""
        for controller in self.controllers.values():
            controller.heard = asyncio.get_running_loop().time()
        self.running.set()

    def crash(self):
        self.drop([])
        for namespaces in self.subsystems.values():
            for ns in namespaces:
                ns.disk.crash()

    def resize(self, size):
        for namespaces in self.subsystems.values():
            namespaces[0].disk.resize(size)
        self.notice_changed(0)

    def set_ana(self, index, state):
        port = self.ports[int(index)]
        port.ana = ANA_STATES[state]
        port.ana_changes += 1
        self.notice(EVENT_ANA, port)

    def notify(self, kind):
        if kind == "namespace":
            self.notice_changed(0)
            return
        self.generation += kind == "discovery"
        self.notice({"ana": EVENT_ANA, "discovery": EVENT_DISCOVERY}[kind])

    async def command(self, line):
        """What the answer holds besides "ok"."""
        word, *words = line.split()
        if word == "set":
            self.settings.change(line.split(None, 1)[1])
        elif word == "faults" and words == ["none"]:
            self.settings.faults.clear()
        elif word == "stats":
            return self.stats()
        elif word == "wait":
            return await self.wait(*words)
        elif word == "log":
            return {"log": list(self.log)}
        elif word == "resize":
            self.resize(int(words[0], 0))
        elif word == "ana":
            self.set_ana(*words)
        elif word == "notify":
            self.notify(*words)
        elif word == "drop":
            self.drop(words)
        elif word == "crash":
            self.crash()
        elif word in ("listen", "stop-listening"):
            await self.relisten(words, word == "listen")
        elif word == "pause":
            self.running.clear()
        elif word == "resume":
            self.resume()
        elif word == "read":
            disk = next(iter(self.subsystems.values()))[0].disk
            return {"data": disk.read(int(words[0], 0), int(words[1], 0)).hex()}
        elif word == "quit":
            self.ended.set()
        else:
            raise ValueError(f"no command is called {word!r}")
        return {}

    async def control(self, reader, writer):
        while line := (await reader.readline()).decode().strip():
            try:
                answer = {"ok": True, **await self.command(line)}
            except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
                answer = {"ok": False, "error": str(error) or type(error).__name__}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def run(self):
        for port in self.ports:
            await self.listen(port)
        if self.args.control:
            await asyncio.start_unix_server(self.control, self.args.control)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.ended.set)
        ready = f"ready {' '.join(str(port) for port in self.ports)}\n"
        if self.args.ready_fd is None:
            print(ready, end="", flush=True)
        else:
            os.write(self.args.ready_fd, ready.encode())
            os.close(self.args.ready_fd)
        await self.ended.wait()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=keys_help(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--listen", metavar="HOST:PORT", action="append", help="port 0: any that is free")
    parser.add_argument("--subsystem", metavar="NQN", action="append")
    parser.add_argument("--size", metavar="BYTES", type=int, default=0, help="64 MiB, or that of the file")
    parser.add_argument("--block", metavar="BYTES", type=int, choices=(512, 4096))
    parser.add_argument("--file", metavar="PATH", help="content of the first subsystem's first namespace")
    parser.add_argument("--control", metavar="UNIX_SOCKET")
    parser.add_argument("--ready-fd", metavar="FD", type=int, help="where the ready line goes instead of stdout")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting or a fault")
    args = parser.parse_args()
    args.listen = args.listen or ["127.0.0.1:0"]
    args.subsystem = args.subsystem or ["nqn.2024-01.org.ublkd:test"]
    return args


async def main():
    await Target(parse_arguments()).run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (ValueError, OSError) as error:
        sys.exit(f"nvme_target.py: {error}")
