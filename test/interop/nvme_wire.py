"""NVMe over TCP on the wire: numbers, PDUs, digests. All integers are little endian.

Sources: NVM Express Base Specification 2.0 (with NVMe over Fabrics), NVM Command Set Specification 1.0,
NVM Express TCP Transport Specification 1.0.
"""

import functools
import operator
import struct

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CAPSULE_CMD, CAPSULE_RESP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
PDU_NAMES = {ICREQ: "ICReq", ICRESP: "ICResp", H2C_TERM: "H2CTermReq", C2H_TERM: "C2HTermReq",
             CAPSULE_CMD: "CapsuleCmd", CAPSULE_RESP: "CapsuleResp", H2C_DATA: "H2CData", C2H_DATA: "C2HData",
             R2T: "R2T"}  # fmt: skip
# HLEN is fixed by the type.
HLEN = {ICREQ: 128, ICRESP: 128, H2C_TERM: 24, C2H_TERM: 24, CAPSULE_CMD: 72, CAPSULE_RESP: 24, H2C_DATA: 24,
        C2H_DATA: 24, R2T: 24}  # fmt: skip
HDGST, DDGST, LAST, SUCCESS = 1, 2, 4, 8
TERM_BYTES_MAX = 152

# Fatal error status of a TermReq
HEADER_FIELD, SEQUENCE, HEADER_DIGEST, OUT_OF_RANGE, LIMIT, UNSUPPORTED = 1, 2, 3, 4, 5, 6

SGL_IN_CAPSULE, SGL_TRANSPORT = 0x01, 0x5A
ADMIN_IN_CAPSULE_BYTES = 8192

FLUSH, WRITE, READ, WRITE_ZEROES, DSM = 0, 1, 2, 8, 9
GET_LOG_PAGE, IDENTIFY, ABORT, SET_FEATURES, GET_FEATURES, ASYNC_EVENT, KEEP_ALIVE = 2, 6, 8, 9, 10, 12, 0x18
FABRICS = 0x7F
PROPERTY_SET, CONNECT, PROPERTY_GET, DISCONNECT = 0, 1, 4, 8
IO_NAMES = {FLUSH: "flush", WRITE: "write", READ: "read", WRITE_ZEROES: "write_zeroes", DSM: "dsm"}
ADMIN_NAMES = {GET_LOG_PAGE: "get_log_page", IDENTIFY: "identify", ABORT: "abort", SET_FEATURES: "set_features",
               GET_FEATURES: "get_features", ASYNC_EVENT: "async_event", KEEP_ALIVE: "keep_alive"}  # fmt: skip
FABRICS_NAMES = {PROPERTY_SET: "property_set", CONNECT: "connect", PROPERTY_GET: "property_get",
                 DISCONNECT: "disconnect"}  # fmt: skip
NAMES = [*IO_NAMES.values(), *ADMIN_NAMES.values(), *FABRICS_NAMES.values()]

CONTROL_FUA = 1 << 14
DSM_DEALLOCATE = 4
CATTR_NO_SQ_FLOW = 4
CAP, VS, CC, CSTS = 0, 8, 0x14, 0x1C
CSTS_RDY, CSTS_CFS, CSTS_SHST_DONE = 1, 2, 8

FEAT_VWC, FEAT_QUEUES, FEAT_EVENTS, FEAT_KATO = 6, 7, 0x0B, 0x0F
LOG_ERROR, LOG_SMART, LOG_FIRMWARE, LOG_CHANGED, LOG_EFFECTS, LOG_ANA, LOG_DISCOVERY = 1, 2, 3, 4, 5, 0x0C, 0x70
# Bits of OAES and of the feature; (information, log page) of the notice
EVENT_NAMESPACE, EVENT_ANA, EVENT_DISCOVERY = 8, 11, 31
NOTICES = {EVENT_NAMESPACE: (0, LOG_CHANGED), EVENT_ANA: (3, LOG_ANA), EVENT_DISCOVERY: (0xF0, LOG_DISCOVERY)}

ANA_STATES = {"optimized": 1, "non-optimized": 2, "inaccessible": 3, "persistent-loss": 4, "change": 0xF}

# Status: type << 8 | code
DNR = 1 << 14
INVALID_OPCODE, INVALID_FIELD, ABORTED, INVALID_NAMESPACE, SEQUENCE_ERROR = 1, 2, 7, 0x0B, 0x0C
SGL_LENGTH, WRITE_PROTECTED, TRANSIENT, LBA_RANGE, EVENT_LIMIT = 0x0F, 0x20, 0x22, 0x80, 0x105
CONNECT_FORMAT, CONNECT_PARAMETER, CONNECT_HOST, INVALID_LOG = 0x180, 0x182, 0x184, 0x109
ANA_STATUS = {3: 0x302, 4: 0x301, 0xF: 0x303}


class Violation(Exception):
    """What no host may send: C2HTermReq, and the connection ends."""

    def __init__(self, words, fes=HEADER_FIELD, fei=0):
        super().__init__(words)
        self.fes, self.fei, self.header = fes, fei, b""


class Refused(Exception):
    """The status of a command that fails."""

    def __init__(self, status, result=0):
        super().__init__(f"status {status:#x}")
        self.status, self.result = status, result


# ---- CRC32C: a word at a time; what is long is folded to half its length first, all words at once ----


@functools.cache
def crc_tables():
    """What 16 bits become after 32 and after 16 steps, and a byte after 8."""
    byte = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        byte.append(value)
    short = []
    for value in range(65536):
        value = byte[value & 255] ^ value >> 8
        short.append(byte[value & 255] ^ value >> 8)
    return [short[value & 0xFFFF] ^ value >> 16 for value in short], short, byte


@functools.cache
def skip_matrix(length):
    """What each bit of a word becomes when so many bytes, a power of two, pass by."""
    low, high, _ = crc_tables()
    if length == 4:
        return [low[1 << bit & 0xFFFF] ^ high[1 << bit >> 16] for bit in range(32)]
    half = skip_matrix(length // 2)

    def pass_half(word):
        return functools.reduce(operator.xor, (half[bit] for bit in range(32) if word >> bit & 1), 0)

    return [pass_half(word) for word in half]


@functools.cache
def skip_tables(length):
    """The same as tables for bytes.translate: [byte of the word][byte of what it becomes]."""
    tables, matrix = [], skip_matrix(length)
    for byte in range(4):
        words = [0]
        for word in matrix[8 * byte : 8 * byte + 8]:
            words += [word ^ other for other in words]
        tables.append([bytes(word >> 8 * out & 0xFF for word in words) for out in range(4)])
    return tables


def fold(data, length):
    """Moves the words of the beginning towards the end, until only `length` bytes are left: the CRC, which is
    linear, is the same."""
    head, tables = data[: len(data) - length], skip_tables(length)
    moved = bytearray(len(head))
    for out in range(4):
        lanes = (int.from_bytes(head[byte::4].translate(tables[byte][out]), "little") for byte in range(4))
        moved[out::4] = functools.reduce(operator.xor, lanes).to_bytes(len(head) // 4, "little")
    rest = int.from_bytes(data[len(head) :], "little")
    return (rest ^ int.from_bytes(moved, "little") << 8 * (length - len(head))).to_bytes(length, "little")


def crc32c(data):
    low, high, byte = crc_tables()
    words, tail, crc = bytes(data[: len(data) & ~3]), data[len(data) & ~3 :], 0xFFFFFFFF
    if len(words) > 1024:
        words, crc = bytes(value ^ 0xFF for value in words[:4]) + words[4:], 0
    while len(words) > 1024:
        words = fold(words, 1 << (len(words) - 1).bit_length() - 1)
    for (word,) in struct.iter_unpack("<I", words):
        crc ^= word
        crc = low[crc & 0xFFFF] ^ high[crc >> 16]
    for value in tail:
        crc = byte[(crc ^ value) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def digest(data):
    return struct.pack("<I", crc32c(data))


# ---- PDUs ----


class Wire:
    """What ICReq and ICResp agreed on; data are aligned for whoever receives them."""

    def __init__(self):
        self.hdgst = self.ddgst = False
        self.hpda = self.cpda = 0
        self.maxr2t, self.maxh2cdata = 1, 1 << 17


# What is wrong with one PDU: byte of the header -> value, or a digest.
MANGLES = {"bad_hlen": (2, lambda hlen: hlen ^ 4), "unknown_pdu": (0, lambda kind: 0x42),
           "oversize_pdu": (7, lambda plen: 0x7F), "bad_pdo": (3, lambda pdo: pdo ^ 1),
           "bad_flags": (1, lambda flags: flags ^ HDGST), "bad_hdgst": (0, None), "bad_ddgst": (0, None)}  # fmt: skip


def pdu(kind, body, wire, flags=0, data=b"", align=0, mangle=None):
    """align: of the data, in dwords, from 0."""
    hlen = 8 + len(body)
    flags |= HDGST * wire.hdgst | DDGST * (wire.ddgst and len(data) > 0)
    head = hlen + 4 * wire.hdgst
    pdo = -(-head // (4 * align + 4)) * (4 * align + 4) if data else 0
    plen = (pdo or head) + len(data) + (4 if flags & DDGST else 0)
    header = bytearray(struct.pack("<BBBBI", kind, flags, hlen, pdo, plen) + body)
    if mangle and MANGLES[mangle][1]:
        at, change = MANGLES[mangle]
        header[at] = change(header[at])
    out = [header]
    if wire.hdgst:
        out.append(wrong(digest(header)) if mangle == "bad_hdgst" else digest(header))
    if data:
        out += [bytes(pdo - head), data]
        if wire.ddgst:
            out.append(wrong(digest(data)) if mangle == "bad_ddgst" else digest(data))
    return b"".join(out)


def wrong(four):
    return bytes([four[0] ^ 1]) + four[1:]


def plain_pdu(kind, body, hlen):
    """ICReq, ICResp, TermReqs: without digests."""
    return struct.pack("<BBBBI", kind, 0, hlen, 0, 8 + len(body)) + body


def icresp(pfv, cpda, digests, maxh2cdata):
    return plain_pdu(ICRESP, struct.pack("<HBBI", pfv, cpda, digests, maxh2cdata) + bytes(112), 128)


def term(kind, fes, fei, header=b""):
    return plain_pdu(kind, struct.pack("<HI", fes, fei) + bytes(10) + header[: TERM_BYTES_MAX - 24], 24)


def completion(cid, status=0, result=0, sq_head=0, qid=0):
    return struct.pack("<QHHHH", result, sq_head, qid, cid, status << 1)


def data_body(cid, ttag, offset, length):
    """Of C2HData (ttag 0), H2CData and R2T."""
    return struct.pack("<HHIII", cid, ttag, offset, length, 0)


class Command:
    """A command that came: dwords by number."""

    def __init__(self, header, admin, data):
        sqe = header[8:72]
        self.header, self.sqe, self.dwords, self.data = header, sqe, struct.unpack("<16I", sqe), data
        self.opcode, self.flags, self.cid, self.nsid = struct.unpack("<BBHI", sqe[:8])
        self.sgl_offset, self.length, self.sgl = struct.unpack("<QI", sqe[24:36]) + (sqe[39],)
        self.admin = admin
        self.kind = sqe[4] if self.opcode == FABRICS else self.opcode
        names = FABRICS_NAMES if self.opcode == FABRICS else ADMIN_NAMES if admin else IO_NAMES
        self.name = names.get(self.kind, f"{'fabrics.' if self.opcode == FABRICS else 'admin.' * admin}{self.kind:#x}")

    def to_controller(self):
        return self.kind & 3 == 1 and self.length > 0

    def to_host(self):
        return self.kind & 3 == 2

    @property
    def lba(self):
        return self.dwords[10] | self.dwords[11] << 32

    @property
    def blocks(self):
        return (self.dwords[12] & 0xFFFF) + 1

    @property
    def fua(self):
        return self.dwords[12] >> 16 & CONTROL_FUA != 0


def is_nqn(name):
    """What can be in the field, a character for each byte: Linux' target takes any such name."""
    return 1 <= len(name) <= 223 and all(ord(c) >= 32 and c != "\x7f" for c in name)


def text(field):
    """A field that ends with zero bytes, without them; a zero byte inside stays one."""
    return field.rstrip(b"\0").decode("latin-1")
