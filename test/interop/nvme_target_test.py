#!/usr/bin/env python3
"""nvme_target.py against a small host of its own: what it serves is what the specification says, and where it is
told to misbehave it does just that. Prints TAP; no root, no ublk. Usage: nvme_target_test.py [NAME]: the
checks whose name has this in it."""

import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True  # the tree stays clean

from nvme_host import Broken, Host, Queue, Terminated, command, expect, fabrics

HERE = os.path.dirname(os.path.abspath(__file__))
NQN = "nqn.2024-01.com.example:disk"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
tmp = tempfile.TemporaryDirectory(prefix="ublkd-nvme-target.")
RANDOM = random.Random(7)


class Target:
    """The program, and its control socket."""

    def __init__(self, *args, listen=("127.0.0.1:0",)):
        path = os.path.join(tmp.name, "control")
        if os.path.exists(path):
            os.unlink(path)
        where = [word for address in listen for word in ("--listen", address)]
        self.program = subprocess.Popen([f"{HERE}/nvme_target.py", "--subsystem", NQN, "--control", path, "--size",
                                         str(4 << 20), *where, *args], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)  # fmt: skip
        words = self.program.stdout.readline().split()
        expect(words[:1] == ["ready"], f"ready line {words}")
        self.addresses = [(host, int(port)) for host, port in (word.rsplit(":", 1) for word in words[1:])]
        self.address = self.addresses[0]
        self.control = socket.socket(socket.AF_UNIX)
        self.control.settimeout(20)
        self.control.connect(path)
        self.lines = self.control.makefile("rw")

    def tell(self, line):
        self.lines.write(line + "\n")
        self.lines.flush()
        return json.loads(self.lines.readline())

    def do(self, line):
        answer = self.tell(line)
        expect(answer["ok"], f"{line}: {answer}")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                expect(self.do("stats")["bugs"] == 0, "an exception in the target")
        finally:
            self.program.terminate()
            self.program.wait()
            self.control.close()

    def clean(self):
        stats = self.do("stats")
        expect(stats["violations"] == 0, stats["last_violation"])
        return stats


def raises(kind, call, *args):
    """What the call must end with; the exception."""
    try:
        call(*args)
    except kind as error:
        return error
    raise Broken(f"no {kind.__name__}")


def silence(queue):
    queue.socket.settimeout(0.05)
    raises(TimeoutError, queue.socket.recv, 1)
    queue.socket.settimeout(30)


def noise(nr):
    return RANDOM.randbytes(nr)


# ---- what it serves ----


def test_bring_up():
    with Target() as t, Host(t.address, NQN) as host:
        expect(host.cap & 0xFFFF == 127 and host.cap >> 16 & 1 and host.cap >> 37 & 1, f"CAP {host.cap:#x}")
        expect(host.vs == 0x20000, f"VS {host.vs:#x}")
        expect(host.id[24:40] == b"ublkd test      " and host.id[768:1024].rstrip(b"\0").decode() == NQN, "names")
        expect((host.granted, host.capsule_bytes) == (3, 8192), "queues, capsules")
        expect(struct.unpack("<HI", host.id[514:520]) == (128, 1) and host.id[540] == 1, "MAXCMD, NN, MNAN")
        ns = host.admin.identify(0, 1)
        expect(struct.unpack("<Q", ns[:8])[0] == 8192 and ns[130] == 9, "size, block")
        expect(struct.unpack("<II", host.admin.identify(2, 0)[:8]) == (1, 0), "list of namespaces")
        ids = host.admin.identify(3, 1)
        kinds, at = {}, 0
        while ids[at + 1]:
            kinds[ids[at]], at = ids[at + 4 : at + 4 + ids[at + 1]], at + 4 + ids[at + 1]
        expect({kind: len(value) for kind, value in kinds.items()} == {1: 8, 2: 16, 3: 16, 4: 1}, f"{kinds}")
        expect(kinds[2] == ns[104:120] and kinds[1] == ns[120:128], "NGUID, EUI64 are the same in both")
        for cns in (6, 8):
            host.admin.identify(cns, 1)
        expect(host.admin.run(command(6, 2, 4096, 0), 4096)[0] == 0x400B, "no other namespace")
        expect(host.admin.ok(command(0x18)) == 0, "keep alive")
        stats = t.clean()
        expect(stats["queues"] == [0, 1] and stats["commands"]["connect"] == 2, f"{stats}")


def round_trip(host, sizes):
    for nr in sizes:
        offset, data = RANDOM.randrange(64) * 4096, noise(nr)
        host.write(offset, data)
        expect(host.read(offset, nr) == data, f"{nr} bytes at {offset} come back")


def test_data():
    with Target() as t:
        for digests in ({}, {"hdgst": True}, {"ddgst": True}, {"hdgst": True, "ddgst": True}):
            with Host(t.address, NQN, **digests) as host:
                round_trip(host, (512, 4096, 8192, 12288))
        with Host(t.address, NQN, hdgst=True, ddgst=True, hpda=7) as host:
            round_trip(host, (512, 12288))
            # a page of a whole number of words, and one above a fold of the target's CRC
            for nr in (20, 1028, 4096):
                host.admin.log(2, nr)
        stats = t.clean()
        expect(stats["r2t_sent"] == 5 and stats["in_capsule_commands"] == 10 + 4 * 3 + 1, f"{stats}")


def test_pieces():
    with Target("--set", "cpda=3", "--set", "maxh2cdata=4096", "--set", "r2t_bytes=10240", "--set",
                "c2h_bytes=6144") as t:  # fmt: skip
        with Host(t.address, NQN, hdgst=True, ddgst=True, maxr2t=3) as host:
            expect((host.io.cpda, host.io.maxh2c) == (3, 4096), "CPDA, MAXH2CDATA")
            round_trip(host, (32768,))
            expect((host.io.r2ts, host.io.pieces) == (4, 6), f"{host.io.r2ts} R2Ts, {host.io.pieces} pieces")
            t.do("set success 0")
            round_trip(host, (512,))
            expect(host.io.last_flags & 12 == 4, "no SUCCESS when it is off")
        expect(t.clean()["h2c_received"] == 3 * 3 + 1, "H2CData")


def test_several_r2ts():
    with Target("--set", "r2t_bytes=4096") as t, Host(t.address, NQN, maxr2t=2) as host:
        data = noise(16384)
        cid = host.io.submit(host.rw(1, 0, len(data)))
        got = [host.io.on_r2t(host.io.receive()[2], cid, data, at) for at in (0, 4096)]
        silence(host.io)
        host.io.send_data(cid, data, got[0])
        got.append(host.io.on_r2t(host.io.receive()[2], cid, data, 8192))
        for r2t in got[1:]:
            host.io.send_data(cid, data, r2t)
        host.io.send_data(cid, data, host.io.on_r2t(host.io.receive()[2], cid, data, 12288))
        expect(host.io.complete(cid)[0] == 0 and host.read(0, len(data)) == data, "all data")
        t.clean()


def test_commands():
    with Target() as t, Host(t.address, NQN) as host:
        host.write(0, noise(8192), 1 << 14)
        host.io.ok(command(0, 1))
        host.io.ok(host.rw(8, 512, 512))
        ranges = struct.pack("<IIQIIQ", 0, 1, 2, 0, 1, 4)
        host.io.ok(command(9, 1, 32, 1, 4, in_capsule=True), capsule=ranges)
        # as Linux does it: a whole page, whatever the number of ranges
        ranges = struct.pack("<IIQIIQ", 0, 1, 5, 0, 1, 6).ljust(4096, b"\0")
        host.io.ok(command(9, 1, 4096, 0, 4, in_capsule=True), capsule=ranges)
        data = host.read(0, 8192)
        zero = [not any(data[at : at + 512]) for at in range(0, 4096, 512)]
        expect(zero == [False, True, True, False, True, True, False, False], f"zeroes at {zero}")
        expect(host.io.run(host.rw(2, 4 << 20, 512), 512)[0] == 0x4080, "behind the end")
        expect(host.io.run(command(5, 1))[0] == 0x4001, "Compare is not there")
        expect(t.do("stats")["fua"] == 1 and t.do("log")["log"][-1]["name"] == "0x5", "FUA; log")


def test_flow_control():
    with Target() as t, Host(t.address, NQN, no_flow=False) as host:
        for number in range(40):
            host.write(0, noise(512))
            expect(host.io.sq_head == (number + 2) % 32, f"SQHD {host.io.sq_head}")
        host.read(0, 512)
        expect(not host.io.last_flags & 8, "SUCCESS in spite of SQ flow control")


def test_discovery():
    with Target("--subsystem", NQN + "2", listen=("127.0.0.1:0", "127.0.0.1:0")) as t:
        with Host(t.address, DISCOVERY, want_io=False) as host:
            expect(host.id[111] == 2, "a discovery controller")
            generation, nr, form = struct.unpack("<QQH", host.admin.log(0x70, 1024)[:18])
            entries = host.admin.log(0x70, 1024 * nr, 1024)
            seen = {(e[512:768].rstrip().decode(), int(e[32:64]), e[256:512].rstrip(b"\0").decode())
                    for e in (entries[at : at + 1024] for at in range(0, len(entries), 1024))}  # fmt: skip
            wanted = {(*address, nqn) for address in t.addresses for nqn in (NQN, NQN + "2")}
            expect(form == 0 and seen == wanted, f"{seen}")
            host.admin.ok(command(9, 0, 0, 0x0B, 1 << 31))
            cid = host.admin.submit(command(0x0C))
            t.do("stop-listening 1")
            expect(host.admin.complete(cid)[1] == 0x70F002, "the event")
            now = struct.unpack("<QQ", host.admin.log(0x70, 1024)[:16])
            expect(now[0] > generation and now[1] == 2, f"{now}")
            raises(ConnectionRefusedError, Queue, t.addresses[1])
            t.do("listen 1")
            Queue(t.addresses[1]).socket.close()
        t.clean()


def test_resize():
    with Target() as t, Host(t.address, NQN) as host:
        host.admin.ok(command(9, 0, 0, 0x0B, 1 << 8))
        cid = host.admin.submit(command(0x0C))
        t.do(f"resize {8 << 20}")
        expect(host.admin.complete(cid)[1] == 0x040002, "the event")
        cid = host.admin.submit(command(0x0C))
        t.do(f"resize {6 << 20}")
        expect(host.admin.log(4, 4096)[:8] == struct.pack("<II", 1, 0), "log of changed namespaces")
        expect(struct.unpack("<Q", host.admin.identify(0, 1)[:8])[0] == 6 << 11, "size")
        t.do(f"resize {5 << 20}")
        expect(host.admin.complete(cid)[1] == 0x040002, "a masked event does not come; the next one does")
        round_trip(host, (4096,))
        t.do("resize 0")
        expect(host.admin.identify(2, 0)[:4] == bytes(4), "a namespace without blocks is not active")


def test_ana():
    with Target(listen=("127.0.0.1:0", "127.0.0.1:0")) as t:
        with Host(t.addresses[0], NQN) as here, Host(t.addresses[1], NQN) as there:
            expect(here.id[76] & 8, "ANA is reported")
            here.admin.ok(command(9, 0, 0, 0x0B, 1 << 11))
            cid = here.admin.submit(command(0x0C))
            t.do("ana 0 inaccessible")
            expect(here.admin.complete(cid)[1] == 0x0C0302, "the event")
            states = [host.admin.log(0x0C, 52)[32] for host in (here, there)]
            expect(states == [3, 1], f"states {states}")
            expect(here.io.run(here.rw(2, 0, 512), 512)[0] == 0x302, "refused")
            round_trip(there, (4096,))
            t.do("ana 0 optimized")
            round_trip(here, (4096,))
        t.clean()


def test_keep_alive():
    with Target("--set", "kas=1") as t, Host(t.address, NQN, kato_ms=600000) as host:
        expect(host.admin.ok(command(10, 0, 0, 0x0F)) == 600000, "Connect's timeout")
        start = time.monotonic()
        host.admin.ok(command(9, 0, 0, 0x0F, 300))
        expect(raises(Terminated, host.admin.receive).fes is None, "the controller ends")
        expect(time.monotonic() - start >= 0.29, "not before its time")
        raises(Terminated, host.io.receive)
        stats = t.do("wait kato_expired 1")
        expect(t.do("stats")["controllers"] == 0, f"{stats}")


def test_connect_refused():
    def status(nqn=NQN, **options):
        with Queue(t.address) as queue:
            return queue.connect(nqn, **options)

    with Target() as t, Host(t.address, NQN) as host:
        expect(status("nqn.2024-01.com.example:other") == (0x4182, 0x10100), "an unknown subsystem")
        expect(status("disk") == (0x4182, 0x10100), "no NQN at all")
        expect(status(host_nqn="no\nbody") == (0x4182, 0x10200), "a host with a control character")
        expect(status(qid=1, cntlid=77)[0] == 0x4182, "an I/O queue of no controller")
        expect(status(qid=1, cntlid=host.cntlid)[0] == 0x400C, "an I/O queue that is there")
        expect(status(qid=17, cntlid=host.cntlid) == (0x4182, 42), "one queue too many")
        t.do("set allow_host nqn.2024-01.com.example:else")
        expect(status()[0] == 0x4184, "a host that is not allowed")
        t.do("set allow_host=")
        t.do("set reject_connect 1:0x81")
        expect([status()[0], status()[0]] == [0x181, 0], "reject_connect, once")


def test_abort():
    with Target() as t, Host(t.address, NQN) as host:
        t.do("set stall 1:cmd=read")
        cid = host.io.submit(host.rw(2, 0, 512))
        t.do("wait struck.stall 1")
        expect(host.admin.ok(command(8, 0, 0, 1 | cid << 16)) == 0, "Abort")
        expect(host.io.complete(cid, 512)[0] == 7, "the aborted command")
        expect(host.admin.ok(command(8, 0, 0, 1 | cid << 16)) == 1, "Abort of what is gone")


def test_shutdown():
    with Target() as t, Host(t.address, NQN) as host:
        host.io.ok(fabrics(8))
        host.admin.ok(fabrics(0, 0, 0x14, 6 << 16 | 4 << 20 | 1 << 14 | 1))
        expect(host.admin.property_get(0x1C) & 12 == 8, "CSTS.SHST")
        expect(t.clean()["shutdowns"] == 1, "shutdowns")


def test_drop_pause():
    with Target() as t, Host(t.address, NQN) as host:
        t.do("pause")
        cid = host.io.submit(host.rw(2, 0, 512))
        silence(host.io)
        t.do("resume")
        expect(host.io.complete(cid, 512)[0] == 0, "an answer after all")
        t.do("drop")
        raises(Terminated, host.io.receive)
        expect(t.do("stats")["open"] == 0, "open connections")


def test_crash():
    path = os.path.join(tmp.name, "file")
    with Target("--set", "volatile=1", "--file", path) as t:
        with Host(t.address, NQN) as host:
            host.write(0, b"a" * 512)
            host.io.ok(command(0, 1))
            for offset, byte, control in ((0, b"b", 0), (512, b"c", 1 << 14), (0, b"d", 0)):
                host.write(offset, byte * 512, control)
            expect(host.read(0, 512) == b"d" * 512, "before")
            t.do("crash")
        with Host(t.address, NQN) as host:
            expect(host.read(0, 1024) == b"a" * 512 + b"c" * 512, "not flushed: lost; with FUA: kept")
    with open(path, "rb") as file:
        expect(file.read(1024) == b"a" * 512 + b"c" * 512, "the file has it")


# ---- what it notices ----


def test_host_violations():
    def fes(breaks, **options):
        """What C2HTermReq says of it."""
        with Host(t.address, NQN, **options) as host:
            breaks(host)
            return raises(Terminated, host.io.receive).fes

    def wrong_header_digest(host):
        host.io.break_digest = "header"
        host.io.submit(host.rw(2, 0, 512))

    def unasked_data(host):
        host.io.send(6, struct.pack("<HHIII", 1, 1, 0, 512, 0), bytes(512), 4)

    def large_capsule(host):
        host.io.send(4, bytes(64), bytes(8704))

    def wrong_hlen(host):
        host.io.socket.sendall(struct.pack("<BBBBI", 4, 0, 76, 0, 76))

    def too_many(host):
        for _ in range(4):
            host.io.submit(host.rw(2, 0, 512))

    with Target() as t:
        expect(fes(wrong_header_digest, hdgst=True) == 3, "a wrong header digest")
        expect(fes(unasked_data) == 1, "H2CData that nobody asked for")
        expect(fes(large_capsule) == 5, "too much data in a capsule")
        expect(fes(wrong_hlen) == 1, "HLEN")
        t.do("set stall always")
        expect(fes(too_many, entries=4) == 5, "more commands than the queue has room for")
        expect(t.do("stats")["violations"] == 5, "counted")


def test_host_digest():
    with Target() as t, Host(t.address, NQN, ddgst=True) as host:
        for nr in (512, 12288):
            host.write(0, b"a" * nr)
            host.io.break_digest = "data"
            inside = nr <= 8192
            status = host.io.run(host.rw(1, 0, nr, inside), 0, b"b" * nr * inside, b"b" * nr * (not inside))[0]
            host.io.break_digest = 0
            expect(status == 0x22, f"a wrong data digest: {status:#x}")
            expect(host.read(0, nr) == b"a" * nr, "nothing is written")
        expect(t.do("stats")["data_digest_errors"] == 2, "counted")


# ---- what it does when told to ----


def test_status():
    with Target("--set", "status=write:2:0x80:count=2") as t, Host(t.address, NQN) as host:
        got = [host.io.run(host.rw(1, 0, 512, True), capsule=bytes(512))[0] for _ in range(3)]
        expect(got == [0x280, 0x280, 0], f"{got}")
        t.do("set status read:0:4:dnr:after=1:count 1")
        got = [host.io.run(host.rw(2, 0, 512), 512)[0] for _ in range(3)]
        expect(got == [0, 0x4004, 0], f"{got}")
        expect(not t.tell("set nonsense 1")["ok"] and not t.tell("nonsense")["ok"], "nonsense is refused")
        for line in ("set uuid 12", "set vs 2", "set status write:1", "set stall 1:when=later", "ana 7 optimized"):
            expect(not t.tell(line)["ok"], line)


# fault, command, what this host says of it (None: the connection's end)
WRONGS = [
    ("wrong_cid", "read", "CapsuleResp for command"), ("data_outside", "read", "bytes at 4096"),
    ("data_short", "read", "success with 2048"), ("data_twice", "read", "bytes at 0"),
    ("data_gap", "read", "bytes at 2048"), ("success_early", "read", "SUCCESS before"),
    ("data_unknown_cid", "read", "C2HData for command"), ("data_zero", "read", "PDO 0"),
    ("r2t_for_read", "read", "R2T of 4096"), ("oversize_pdu", "read", "PLEN"), ("unknown_pdu", "read", "type 0x42"),
    ("bad_hlen", "read", "HLEN"), ("bad_flags", "read", "flags"), ("bad_pdo", "read", "PDO"),
    ("bad_hdgst", "read", "header digest"), ("bad_ddgst", "read", "data digest"), ("hangup", "read", None),
    ("half_header", "read", None), ("bad_hdgst", "write", "header digest"), ("icresp_again", "read", "type 0x1"),
    ("success_early", "big", "success with 0"), ("r2t_too_long", "big", "R2T of 12800"),
    ("r2t_outside", "big", "R2T of 512 bytes at 12288"), ("r2t_unknown_cid", "big", "R2T for command"),
    ("r2t_zero", "big", "R2T of 0"), ("data_to_write", "big", "bytes at 0"),
]  # fmt: skip


def provoke(host, what):
    if what == "read":
        host.read(0, 4096)
    else:
        host.write(0, bytes(12288 if what == "big" else 512))


def test_wrongs():
    with Target() as t:
        for fault, what, words in WRONGS:
            digests = {"hdgst": "digest" in (words or ""), "ddgst": fault == "bad_ddgst"}
            t.do(f"set {fault} 1")
            with Host(t.address, NQN, **digests) as host:
                error = raises(Terminated if words is None else Broken, provoke, host, what)
                expect(words is None or words in str(error), f"{fault}: {error}")
            expect(t.do("stats")["struck"][fault] >= 1, fault)
        with Host(t.address, NQN) as host:
            round_trip(host, (512, 12288))
        expect(t.clean()["waiting"] == {}, "each once")


def test_asked_wrongly():
    with Target() as t:
        for fault, wanted in (("r2t_too_many", [(0, 512), (512, 512)]), ("r2t_twice", [(0, 12288)] * 2)):
            with Host(t.address, NQN) as host:
                t.do(f"set {fault} 1")
                host.io.submit(host.rw(1, 0, 12288))
                got = [struct.unpack("<II", host.io.receive()[2][4:12]) for _ in range(2)]
                expect(got == wanted, f"{fault}: {got}")
                silence(host.io)
        with Host(t.address, NQN) as host:
            t.do("set r2t_stall 1")
            host.io.submit(host.rw(1, 0, 12288))
            silence(host.io)
            t.do("set half_silent 1")
            host.io.submit(host.rw(2, 0, 512))
            host.io.take(12)
            silence(host.io)
        t.clean()


def test_refused_late():
    with Target() as t, Host(t.address, NQN) as host:
        data = noise(12288)
        t.do("set write_after_all 1")
        status = host.io.run(host.rw(1, 0, len(data)), out=data)[0]
        expect(status == 6 and host.read(0, len(data)) == data, "refused, and written")
        t.do("set status write:0:6:late")
        status = host.io.run(host.rw(1, 0, len(data)), out=bytes(len(data)))[0]
        expect((status, host.io.r2ts) == (6, 2) and host.read(0, len(data)) == data, "the data came in vain")


def test_accept():
    with Target("--set", "accept_close=1") as t:
        raises(Terminated, Queue, t.address)
        t.do("set icresp_garbage 1")
        raises(Broken, Queue, t.address)
        t.do("set icresp_silent 1")
        with socket.create_connection(t.address) as quiet:
            t.do("wait connections 3")
            quiet.settimeout(0.05)
            raises(TimeoutError, quiet.recv, 1)
        Queue(t.address).socket.close()


def test_double_completion():
    with Target("--set", "double_completion=1") as t, Host(t.address, NQN) as host:
        host.read(0, 512)
        expect(host.io.receive()[0] == 5, "the second one")
        t.clean()


def test_term():
    with Target("--set", "term_req=4:cmd=write") as t, Host(t.address, NQN) as host:
        host.read(0, 512)
        expect(raises(Terminated, host.write, 0, bytes(512)).fes == 4, "FES")
        host.admin.socket.sendall(struct.pack("<BBBBIHI", 2, 0, 24, 0, 24 + 72, 3, 0x1234) + bytes(10 + 72))
        raises(Terminated, host.admin.receive)
        t.do("wait term_received 1")
        got = t.do("stats")["terms"][0]
        expect((got["fes"], got["fei"]) == (3, 0x1234), f"{got}")


def test_cut():
    with Target() as t:
        for at in (1, 127, 128, 140, 5000):
            t.do(f"set cut_after {at}")
            raises(Terminated, lambda: Host(t.address, NQN).read(0, 4096))
            sent = t.do("stats")["bytes_sent"]
        expect(sent == 1 + 127 + 128 + 140 + 5000, f"{sent} bytes")
        with Host(t.address, NQN) as host:
            round_trip(host, (4096,))


def test_never_ready():
    with Target("--set", "csts_never_ready=1") as t, Queue(t.address) as queue:
        expect(queue.connect(NQN)[0] == 0, "Connect")
        queue.ok(fabrics(0, 0, 0x14, 6 << 16 | 4 << 20 | 1))
        expect(queue.property_get(0x1C) == 0, "CSTS")
        expect(queue.run(command(6, 0, 4096, 1), 4096)[0] == 0x400C, "Identify of a controller that is not ready")
        t.do("set csts_never_ready 0")
        expect(queue.property_get(0x1C) == 1, "CSTS")


def test_identity():
    with Target("--set", "uuid=00000000-0000-0000-0000-00000000002a", "--set", "nguid=none", "--set", "ms=8", "--set",
                "noiob=64", "--set", "no_dsm=1", "--set", "vwc=0", "--block", "4096") as t:  # fmt: skip
        with Host(t.address, NQN) as host:
            ids, ns = host.admin.identify(3, 1), host.admin.identify(0, 1)
            expect(ids[12:32] == bytes.fromhex("03100000" + "2a".rjust(32, "0")), "UUID, behind the EUI64")
            expect(ns[104:120] == bytes(16) and ns[128:131] == b"\x08\0\x0c" and ns[46] == 64, "namespace")
            expect(host.id[520] == 8 and host.id[525] == 0, "ONCS, VWC")
            t.do("set nsid 3")
            expect(struct.unpack("<II", host.admin.identify(2, 0)[:8]) == (3, 0), "nsid")


# ---- all of it ----


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    tests = {name[5:]: test for name, test in globals().items() if name.startswith("test_") and wanted in name}
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests.items(), 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}")
            print(re.sub("^", "# ", traceback.format_exc().rstrip(), flags=re.M), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
