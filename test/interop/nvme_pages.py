"""Identify data and log pages, as bytes."""

import struct

from nvme_wire import *


def page(fields, length=4096):
    """fields: (offset, format, values...)."""
    out = bytearray(length)
    for offset, form, *values in fields:
        struct.pack_into("<" + form, out, offset, *values)
    return bytes(out)


def padded(words, length):
    return words.encode().ljust(length)[:length]


# ---- Identify ----


def identify_controller(controller):
    s, is_discovery = controller.settings, controller.is_discovery
    ana = controller.has_ana()
    max_cmd = s.mqes + 1 if s.max_cmd < 0 else s.max_cmd
    fields = [
        (4, "20s", padded(s.serial, 20)), (24, "40s", padded(s.model, 40)), (64, "8s", padded(s.firmware, 8)),
        # CMIC: several ports, several controllers, ANA
        (76, "B", 3 | 8 * ana), (77, "B", s.mdts), (78, "H", (controller.cntlid + s.cntlid_add) & 0xFFFF),
        (80, "I", s.version()), (92, "I", controller.offered_events()), (96, "I", s.tbkas << 6),
        (111, "B", 2 if is_discovery else s.cntrltype), (128, "HHH", s.crdt, s.crdt, s.crdt),
        (258, "BBBB", 3, s.aerl, 0, 4), (320, "H", s.kas), (514, "H", max_cmd), (536, "I", s.sgls),
        (768, "256s", controller.nqn.encode()),
    ]  # fmt: skip
    if not is_discovery:
        last = max(ns.nsid for ns in controller.namespaces)
        fields += [
            # Linux takes ANA only with MNAN, at most NN
            (512, "BB", 0x66, 0x44), (516, "I", last), (520, "H", s.offered()), (540, "I", last),
            (525, "B", s.vwc and 7), (526, "HH", s.awupf, s.awupf),
            (1792, "IIH", (64 + s.in_capsule_bytes) // 16, 1, s.icdoff), (1804, "H", 1),
        ]  # fmt: skip
    if ana:
        # optimized, non-optimized, inaccessible, persistent loss, change
        fields += [(342, "BB", s.anatt, 0x1F), (344, "II", 1, 1)]
    return page(fields)


def identify_namespace(ns, has_ana):
    s = ns.settings
    fields = [
        (0, "QQQ", ns.blocks, ns.blocks, ns.blocks), (24, "BBB", s.nsfeat, 0, s.flbas), (29, "BB", s.dps, s.nmic),
        (33, "B", s.dlfeat), (36, "H", s.nawupf), (46, "H", s.noiob),
        (64, "HHHHH", s.npwg, s.npwa, s.npdg, s.npda, s.nows), (92, "I", int(has_ana)), (99, "B", s.read_only),
        (104, "16s", ns.identity("nguid") or b""), (120, "8s", ns.identity("eui") or b""),
        (128, "HBB", s.ms, s.block.bit_length() - 1, 0),
    ]  # fmt: skip
    return page(fields)


def identify_independent(ns, has_ana):
    s = ns.settings
    return page([(0, "BB", s.nsfeat & 0x10, s.nmic), (4, "I", int(has_ana)), (8, "B", s.read_only), (14, "B", 1)])


def identify_limits(s):
    """Of the NVM command set: CNS 6."""
    return page([(1, "B", s.wzsl), (3, "B", s.dmrl), (4, "I", s.dmrsl), (8, "Q", s.dmsl)])


def identify_list(namespaces, after):
    nsids = sorted(ns.nsid for ns in namespaces if ns.nsid > after)
    return page([(0, f"{len(nsids)}I", *nsids)])


def identify_ids(ns):
    out = b""
    for kind, key in ((1, "eui"), (2, "nguid"), (3, "uuid")):
        value = ns.identity(key)
        if value:
            out += struct.pack("<BBH", kind, len(value), 0) + value
    out += struct.pack("<BBHB", 4, 1, 0, ns.settings.csi)
    return out.ljust(4096, b"\0")


# ---- logs ----


def changed_log(nsids):
    return page([(0, f"{len(nsids)}I", *sorted(nsids))])


def ana_log(state, changes, nsids, groups_only):
    nsids = [] if groups_only else sorted(nsids)
    head = struct.pack("<QH6x", changes, 1)
    return head + struct.pack(f"<IIQB15x{len(nsids)}I", 1, len(nsids), changes, state, *nsids)


def discovery_log(settings, generation, entries):
    """entries: (port id, host, port, NQN)."""
    s = settings
    out = struct.pack("<QQH", generation, len(entries), 0).ljust(1024, b"\0")
    for port_id, host, port, nqn in entries:
        family, kind = (2 if ":" in host else 1), s.listed_subtype or (3 if nqn == DISCOVERY_NQN else 2)
        port, host = s.listed_trsvcid or str(port), s.listed_traddr or host
        out += page([(0, "BBBBHHH", s.listed_trtype, family, kind, s.listed_treq, port_id, 0xFFFF, 32),
                     (32, "32s", padded(port, 32)), (256, "256s", nqn.encode()),
                     (512, "256s", padded(host, 256))], 1024)  # fmt: skip
    return out
