"""A small NVMe/TCP host for the checks of nvme_target.py, on its own: nothing here comes from the target's files,
so that one error is not made twice. One command at a time, unless told otherwise; whatever is not as the
specification has it is a Broken."""

import socket
import struct

ICRESP, C2H_TERM, RESP, C2H_DATA, R2T = 1, 3, 5, 7, 9
HEADS = {C2H_TERM: 24, RESP: 24, C2H_DATA: 24, R2T: 24}
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


class Broken(Exception):
    """The target broke the protocol."""


class Terminated(Exception):
    """The target ended the connection: C2HTermReq, or without a word (fes None)."""

    def __init__(self, fes=None):
        super().__init__(f"terminated, FES {fes}")
        self.fes = fes


def expect(holds, words):
    if not holds:
        raise Broken(words)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 & -(crc & 1))
    return ~crc & 0xFFFFFFFF


def command(opcode, nsid=0, length=0, cdw10=0, cdw11=0, cdw12=0, cdw13=0, in_capsule=False):
    sqe = bytearray(64)
    struct.pack_into("<BBHI", sqe, 0, opcode, 0x40, 0, nsid)
    struct.pack_into("<I", sqe, 32, length)
    sqe[39] = 0x01 if in_capsule else 0x5A
    struct.pack_into("<IIII", sqe, 40, cdw10, cdw11, cdw12, cdw13)
    return sqe


def fabrics(kind, attributes=0, offset=0, value=0):
    sqe = command(0x7F, kind)
    sqe[40] = attributes
    struct.pack_into("<IQ", sqe, 44, offset, value)
    return sqe


class Queue:
    """One connection."""

    def __init__(self, address, hdgst=False, ddgst=False, hpda=0, maxr2t=1, timeout=30):
        self.socket = socket.create_connection(address, timeout)
        self.hdgst = self.ddgst = False
        self.hpda, self.maxr2t, self.next_cid, self.pieces, self.r2ts = hpda, maxr2t, 1, 0, 0
        self.last_flags = self.break_digest = 0
        self.socket.sendall(struct.pack("<BBBBIHBBI", 0, 0, 128, 0, 128, 0, hpda, hdgst | ddgst << 1, maxr2t - 1)
                            + bytes(112))  # fmt: skip
        head = self.take(128)
        kind, flags, hlen, pdo, plen, pfv, self.cpda, digests, self.maxh2c = struct.unpack("<BBBBIHBBI", head[:16])
        expect((kind, flags, hlen, pdo, plen, pfv) == (ICRESP, 0, 128, 0, 128, 0), f"ICResp {head[:16].hex()}")
        expect(digests == (hdgst | ddgst << 1), f"digests {digests}")
        self.hdgst, self.ddgst = hdgst, ddgst

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    # ---- PDUs ----

    def take(self, length):
        data = b""
        while len(data) < length:
            try:
                piece = self.socket.recv(length - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Terminated()
            data += piece
        return data

    def send(self, kind, body, data=b"", flags=0):
        hlen = 8 + len(body)
        head, align = hlen + 4 * self.hdgst, 4 * (self.cpda + 1)
        pdo = (head + align - 1) // align * align if data else 0
        has_ddgst = self.ddgst and len(data) > 0
        flags |= self.hdgst | has_ddgst << 1
        header = struct.pack("<BBBBI", kind, flags, hlen, pdo, (pdo or head) + len(data) + 4 * has_ddgst) + body
        out = header
        if self.hdgst:
            out += struct.pack("<I", crc32c(header) ^ (self.break_digest == "header"))
        if data:
            out += bytes(pdo - head) + data
        if has_ddgst:
            out += struct.pack("<I", crc32c(data) ^ (self.break_digest == "data"))
        self.socket.sendall(out)

    def receive(self):
        """(type, flags, the type's own fields, data)"""
        header = self.take(8)
        kind, flags, hlen, pdo, plen = struct.unpack("<BBBBI", header)
        expect(kind in HEADS, f"a PDU of type {kind:#x}")
        expect(hlen == HEADS[kind], f"HLEN {hlen}")
        if kind == C2H_TERM:
            raise Terminated(struct.unpack("<H", self.take(plen - 8)[:2])[0])
        head = hlen + 4 * self.hdgst
        expect(flags & 1 == self.hdgst and plen >= head and plen < 1 << 24, f"flags {flags:#x}, PLEN {plen}")
        header += self.take(hlen - 8)
        if self.hdgst:
            expect(struct.unpack("<I", self.take(4))[0] == crc32c(header), "header digest")
        data = b""
        if kind == C2H_DATA:
            expect(pdo >= head and pdo % (4 * (self.hpda + 1)) == 0 and plen > pdo, f"PDO {pdo}")
            expect(flags >> 1 & 1 == self.ddgst, f"flags {flags:#x}")
            self.take(pdo - head)
            data = self.take(plen - pdo - 4 * self.ddgst)
            if self.ddgst:
                expect(struct.unpack("<I", self.take(4))[0] == crc32c(data), "data digest")
        else:
            expect(pdo == 0 and plen == head, f"PDO {pdo}, PLEN {plen}")
        return kind, flags, header[8:], data

    # ---- commands ----

    def submit(self, sqe, data=b""):
        cid, self.next_cid = self.next_cid, self.next_cid % 0x6000 + 1
        struct.pack_into("<H", sqe, 2, cid)
        self.send(4, bytes(sqe), data)
        return cid

    def on_r2t(self, body, cid, data, asked):
        its_cid, ttag, offset, length = struct.unpack("<HHII", body[:12])
        expect(its_cid == cid, f"R2T for command {its_cid:#x}")
        expect(offset == asked and 0 < length <= len(data) - offset, f"R2T of {length} bytes at {offset}")
        self.r2ts += 1
        return ttag, offset, length

    def send_data(self, cid, data, r2t):
        ttag, offset, length = r2t
        for at in range(offset, offset + length, self.maxh2c):
            nr = min(self.maxh2c, offset + length - at)
            last = at + nr == offset + length
            self.send(6, struct.pack("<HHIII", cid, ttag, at, nr, 0), data[at : at + nr], 4 * last)

    def complete(self, cid, length=0, out=b""):
        """(status, result, data); `out` is what R2Ts may ask for, `length` what comes."""
        data, asked = b"", 0
        while True:
            kind, flags, body, piece = self.receive()
            if kind == R2T:
                r2t = self.on_r2t(body, cid, out, asked)
                asked += r2t[2]
                self.send_data(cid, out, r2t)
            elif kind == C2H_DATA:
                its_cid, _, offset, nr = struct.unpack("<HHII", body[:12])
                expect(its_cid == cid, f"C2HData for command {its_cid:#x}")
                expect(offset == len(data) and nr == len(piece) and offset + nr <= length, f"{nr} bytes at {offset}")
                data, self.last_flags = data + piece, flags
                self.pieces += 1
                if flags & 8:
                    expect(flags & 4 and len(data) == length, "SUCCESS before all data")
                    return 0, 0, data
            else:
                result, sq_head, _, its_cid, status = struct.unpack("<QHHHH", body)
                expect(its_cid == cid, f"CapsuleResp for command {its_cid:#x}")
                expect(status or len(data) == length, f"success with {len(data)} bytes of {length}")
                expect(status or asked == len(out), f"success with {asked} bytes of {len(out)} asked for")
                self.sq_head = sq_head
                return status >> 1, result, data

    def run(self, sqe, length=0, capsule=b"", out=b""):
        return self.complete(self.submit(sqe, capsule), length, out)

    def ok(self, sqe, length=0, capsule=b"", out=b""):
        status, result, data = self.run(sqe, length, capsule, out)
        expect(status == 0, f"opcode {sqe[0]:#x}, {sqe[4]:#x}: status {status:#x}")
        return data if length else result

    def connect(self, nqn, qid=0, cntlid=0xFFFF, kato_ms=0, entries=32, host_nqn=HOST_NQN, no_flow=True):
        """(status, result)"""
        sqe = command(0x7F, 1, 1024, in_capsule=True)
        struct.pack_into("<HHHBBI", sqe, 40, 0, qid, entries - 1, 4 * no_flow, 0, kato_ms)
        data = (bytes(range(16)) + struct.pack("<H", cntlid)).ljust(256, b"\0")
        data += nqn.encode().ljust(256, b"\0") + host_nqn.encode().ljust(512, b"\0")
        return self.run(sqe, capsule=data)[:2]

    def property_get(self, offset):
        return self.ok(fabrics(4, offset == 0, offset))

    def enable(self):
        self.ok(fabrics(0, 0, 0x14, 6 << 16 | 4 << 20 | 1))
        while not (csts := self.property_get(0x1C)) & 1:
            expect(csts == 0, f"CSTS {csts:#x}")

    def identify(self, cns, nsid=0):
        return self.ok(command(6, nsid, 4096, cns), 4096)

    def log(self, log, length, offset=0, specific=0, keep=False):
        numd = length // 4 - 1
        dword10 = log | specific << 8 | keep << 15 | (numd & 0xFFFF) << 16
        return self.ok(command(2, 0xFFFFFFFF, length, dword10, numd >> 16, offset), length)


class Host:
    """An admin queue and one I/O queue, up."""

    def __init__(self, address, nqn, kato_ms=0, no_flow=True, entries=32, want_io=True, **options):
        self.admin = Queue(address, **options)
        self.queues = [self.admin]
        status, self.cntlid = self.admin.connect(nqn, kato_ms=kato_ms)
        expect(status == 0, f"Connect: {status:#x}")
        self.cap, self.vs = self.admin.property_get(0), self.admin.property_get(8)
        self.admin.enable()
        self.id = self.admin.identify(1)
        expect(struct.unpack("<H", self.id[78:80])[0] == self.cntlid, "CNTLID")
        (capsule,) = struct.unpack("<I", self.id[1792:1796])
        self.capsule_bytes, self.block = 16 * (capsule - 4), 512
        if want_io:
            self.granted = self.admin.ok(command(9, 0, 0, 7, 3 | 3 << 16)) & 0xFFFF
            self.io = self.add_queue(address, nqn, 1, entries, no_flow, options)

    def add_queue(self, address, nqn, qid, entries, no_flow, options):
        queue = Queue(address, **options)
        self.queues.append(queue)
        status, _ = queue.connect(nqn, qid, self.cntlid, entries=entries, no_flow=no_flow)
        expect(status == 0, f"Connect of queue {qid}: {status:#x}")
        return queue

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for queue in self.queues:
            queue.socket.close()

    def rw(self, opcode, offset, nr, in_capsule=False, control=0):
        lba = offset // self.block
        return command(opcode, 1, nr, lba & 0xFFFFFFFF, lba >> 32, nr // self.block - 1 | control << 16,
                       in_capsule=in_capsule)  # fmt: skip

    def write(self, offset, data, control=0):
        """As small ones go: in the capsule."""
        inside = len(data) <= self.capsule_bytes
        sqe = self.rw(1, offset, len(data), inside, control)
        self.io.ok(sqe, capsule=data if inside else b"", out=b"" if inside else data)

    def read(self, offset, nr):
        return self.io.ok(self.rw(2, offset, nr), nr)
