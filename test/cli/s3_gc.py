#!/usr/bin/env python3
"""ublkctl s3-gc in a store that is played: what is deleted, what never is, and what writers do meanwhile. What is garbage is
reckoned here once more, from the manifest and the maps. Prints TAP. Usage: s3_gc.py BUILD_FOLDER [CHECK...]"""

import argparse
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True  # the tree stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../interop"))
import s3_store  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.realpath(sys.argv[1])
PREFIX = "disks/vm 1/a/"  # of keys in the store: bucket and prefix
WHERE = "s3://disks/vm 1/a"
OBJECT = 64 << 10
tmp = tempfile.TemporaryDirectory(prefix="ublkd-s3-gc.")


class Store(s3_store.Store):
    """before: called with each request, in its thread, before it is done."""

    before = None

    def act(self, method, path, headers, body):
        if self.before:
            self.before(method, path)
        return super().act(method, path, headers, body)


def path(name, text=None):
    there = os.path.join(tmp.name, name)
    if text is not None:
        with open(there, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(there, 0o600)
    return there


store = Store(argparse.Namespace(listen="127.0.0.1:0", file=None, tls=None, control=None, set=["s3=AK:SK:us-east-1", "page=5"]))
store.up()
KEYS = path("keys", "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\n")


def s3_disk(prefix="vm 1/a", more=""):
    return (f'{{type: s3-disk, bucket: disks, prefix: "{prefix}", endpoint: "http://127.0.0.1:{store.port}", credentials_file: {KEYS}, '
            f"object_size: 64KiB, lease: 1s, timeout: 2s, create: true, size: 2MiB{more}}}")


def tree(more=""):
    return f"{{type: throttle, total_iops_sec: 100000, backend: {s3_disk(more=more)}}}"


ONE = path("one.yaml", f"name: vm\nbackend: {tree()}\n")
TREE = path("tree.yaml", f"type: throttle\ntotal_iops_sec: 100000\nbackend: {s3_disk()}\n")
CONTENT = path("content")

# ---- the store ----


def keys():
    with store.lock:
        return {key for key in store.objects if key.startswith(PREFIX)}


def content(name):
    return store.objects[PREFIX + name][0]


def put(name, body):
    with store.lock:
        store.put(PREFIX + name, body)


def drop(name):
    with store.lock:
        del store.objects[PREFIX + name]


def manifest():
    return json.loads(content("manifest"))


def change_manifest(**values):
    """As a writer would, whose beat counts."""
    old = manifest()
    put("manifest", json.dumps({**old, "beat": old["beat"] + 1, **values}).encode())


def snapshot(name, of):
    return {"name": name, "map": of["map"], "generation": of["generation"], "time": 1}


def map_objects(name):
    body = content(name)
    return {"o/%08x/%08x.%08x" % (generation, index, seq) for index, generation, seq in struct.iter_unpack("<III", body[32:])}


def garbage():
    """Keys of garbage, and of what is kept, that are named as objects and maps are."""
    m = manifest()
    maps = {name for name in [m["map"]] + [s["map"] for s in m["snapshots"]] if name}
    used = set().union(*[map_objects(name) for name in maps])
    gone, kept = set(), set()
    for key in keys():
        name = key[len(PREFIX):]
        parts = re.fullmatch(r"(?:o/([0-9a-f]{8})/[0-9a-f]{8}\.(?!0{8})[0-9a-f]{8}|map/([0-9a-f]{8})\.[0-9a-f]+)", name)
        if parts:
            is_old = int(parts[1] or parts[2], 16) < m["generation"]
            (gone if is_old and name not in used | maps else kept).add(key)
    return gone, kept


def objects_of(some):
    return {key for key in some if "/o/" in key}


# ---- programs ----


def node_io(script, *options, tree_file=TREE):
    done = subprocess.run([f"{BUILD}/test/node_io", "--queues", "1", *options, "-", tree_file], input=script, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done
    return done.stdout


def gc(*words):
    done = subprocess.run([f"{BUILD}/bin/ublkctl", "s3-gc", *words], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def expect(code, words, *command):
    got = gc(*command)
    assert got[0] == code and re.search(words, got[1] + got[2]), got
    assert store.counts["violations"] == 0, store.last_violation
    return got


def opened(*scripts):
    """Opens the disk for each: a generation more."""
    for script in scripts:
        node_io(script + "\nflush\nclose")


def remember():
    node_io(f"dump {CONTENT}", "--read-only")


def verify():
    node_io(f"load {CONTENT}\nverify", "--read-only")


def garbage_disk():
    """A disk that four generations have written, with garbage of each kind."""
    opened("zeroes\nwrite 0 1M 1\nrandom 1 100", "write 0 512k 2\ndiscard 64k 64k", "write 128k 192k 3\nwrite 1M 64k 3", "write 0 64k 4")
    remember()
    gone, kept = garbage()
    assert len(objects_of(gone)) > 10 and len(gone - objects_of(gone)) >= 2 and len(kept) > 10, (gone, kept)
    return gone, kept


def check(fn):
    """Runs fn on an empty store; its documentation is the name of the check."""
    if sys.argv[2:] and fn.__name__ not in sys.argv[2:]:
        return
    store.before = None
    with store.lock:
        store.objects, store.faults = {}, []
        store.counts["violations"] = 0
    tap.run(fn)


def untouched(code, words, *command):
    """It ends so, and nothing is gone."""
    before = keys()
    got = expect(code, words, *command)
    assert keys() == before, before - keys()
    return got


def collected(words="; deleted", code=0, before=None):
    """It deletes what is garbage at the end, and nothing else."""
    before = before or keys()
    expect(code, words, ONE)
    assert not garbage()[0], garbage()[0]
    return before - keys()


# ---- checks ----


@check
def usage():
    """wrong command lines are exit code 2"""
    expect(2, "a file with the device is missing after s3-gc", "--dry-run")
    expect(2, "unexpected argument: b", "a", "b")
    expect(2, "an option does not apply to s3-gc", ONE, "--force")
    done = subprocess.run([f"{BUILD}/bin/ublkctl", "list", "--dry-run"], capture_output=True, text=True)
    assert done.returncode == 2 and "does not apply to list" in done.stderr, done


@check
def dry():
    """--dry-run says what there is and deletes nothing"""
    gone, kept = garbage_disk()
    deletes = store.counts["deletes"]
    count = [len(some) for some in (objects_of(kept), kept - objects_of(kept), objects_of(gone), gone - objects_of(gone))]
    out = untouched(0, r"^s3://disks/vm 1/a: kept ", ONE, "--dry-run")[1]
    assert re.search(r"kept (\d+) objects? \(.*\) and (\d+) maps?; would delete (\d+) objects? \(.*\) and (\d+) maps?\n$", out).groups() == tuple(
        map(str, count)), (out, count)
    assert store.counts["deletes"] == deletes


@check
def collects():
    """all garbage is deleted, and nothing else; then there is none"""
    garbage_disk()
    foreign = ["other", "manifest.bak", "objects/x", "maps/x"]
    for name in foreign:
        put(name, b"x")
    put("../a/o/00000001/00000000.00000001", b"x")
    # Of a writer that is about to be named, or never was.
    generation = manifest()["generation"]
    coming = {f"map/{generation:08x}.ab", f"map/{generation + 1:08x}.ab", f"o/{generation:08x}/00000000.00fffffe",
              f"o/{generation + 1:08x}/00000000.00000001"}
    for name in coming:
        put(name, b"")
    gone, kept = garbage()
    assert {PREFIX + name for name in coming} <= kept
    before = keys()
    lists = store.counts["lists"]
    assert collected() == gone and {PREFIX + name for name in foreign} | kept < keys()
    assert store.counts["lists"] > lists + 5, "pages"
    for name in coming:
        drop(name)
    verify()
    assert before - gone - {PREFIX + name for name in coming} == keys()
    untouched(0, "; deleted 0 objects .* and 0 maps", ONE)
    opened("verify\nrandom 5 100")


@check
def strangers():
    """a key that no rule of the disk explains: nothing is deleted"""
    garbage_disk()
    generation = manifest()["generation"]
    for name, size in (("o/x", 1), ("o/", 0), ("o/00000001/00000000.00000001.bak", 0), ("o/00000001/00000000.00000000", 0),
                       ("o/00000001/0000000A.00000001", 0), ("o/1/0.1", 0), (f"o/{generation:08x}/00000020.00000001", 0),
                       ("o/00000001/00000000.00000001", 5), ("map/00000001.x", 1), ("map/00000001", 1), ("map/1.ab", 1),
                       ("map/00000001.ab/c", 1), ("map/", 0)):
        put(name, b"x" * size)
        untouched(1, f"nothing was deleted: the list of objects makes no sense: it has a key that is none of this disk's: "
                  rf"vm 1/a/{re.escape(name)} \({size} bytes\)", ONE)
        drop(name)
    collected()


@check
def as_json():
    """--json"""
    gone, kept = garbage_disk()
    got = json.loads(expect(0, "", ONE, "--json")[1])
    old = objects_of(gone)
    assert got["device"] == "vm" and got["dry_run"] is False and len(got["disks"]) == 1, got
    disk = got["disks"][0]
    assert disk["disk"] == WHERE and disk["generation"] == manifest()["generation"] and disk["snapshots"] == 0 and disk["error"] is None, disk
    assert disk["deleted"] == disk["garbage"] and disk["deleted"]["objects"] == len(old) and disk["deleted"]["maps"] == len(gone - old), disk
    assert disk["kept"]["objects"] == len(objects_of(kept)) and disk["kept"]["maps"] == len(kept - objects_of(kept)), disk
    assert disk["kept"]["bytes"] == sum(len(content(key[len(PREFIX):])) for key in objects_of(kept)), disk


@check
def new_disk():
    """a disk that was just made; none at all"""
    untouched(1, "there is no disk", ONE)
    opened("zeroes\nwrite 0 64k 1")
    untouched(0, "deleted 0 objects", ONE)


@check
def bad_maps():
    """a map that is damaged or missing: nothing is deleted"""
    garbage_disk()
    m = manifest()
    good = content(m["map"])
    for body, words in ((good[:-1] + bytes([good[-1] ^ 1]), "wrong checksum"), (good[:-12], "makes no sense"), (b"", "makes no sense"),
                        (good + b"x" * (1 << 20), "too long")):
        put(m["map"], body)
        untouched(1, f"nothing was deleted: {m['map']}: .*{words}", ONE)
    drop(m["map"])
    got = untouched(1, f"nothing was deleted: {m['map']}: .*404", ONE, "--json")
    assert "404" in json.loads(got[1])["disks"][0]["error"], got
    put(m["map"], good)
    change_manifest(snapshots=[{"name": "s", "map": "map/00000002.ab", "generation": 2, "time": 1}])
    untouched(1, "nothing was deleted: map/00000002.ab: .*404", ONE)
    put("map/00000002.ab", good)
    untouched(1, "nothing was deleted: map/00000002.ab: .*makes no sense", ONE)
    put("manifest", b"{}")
    untouched(1, "none of ublkd's", ONE)


@check
def snapshots():
    """what a snapshot has is kept as long as there is the snapshot"""
    opened("zeroes\nwrite 0 1M 1", "write 0 64k 2")
    first = manifest()
    opened("write 0 1M 3")
    second = manifest()
    opened("write 0 512k 4", "write 0 64k 5")
    remember()
    change_manifest(snapshots=[snapshot("one", first), snapshot("again", first), snapshot("two", second)])
    has = {PREFIX + name for name in map_objects(first["map"]) | map_objects(second["map"]) | {first["map"], second["map"]}}
    assert collected("deleted [1-9]") and has <= keys()
    change_manifest(snapshots=[snapshot("two", second)])
    gone = collected("deleted [1-9]")
    assert PREFIX + first["map"] in gone and {PREFIX + name for name in map_objects(second["map"])} <= keys()
    change_manifest(snapshots=[])
    assert PREFIX + second["map"] in collected("deleted [1-9]")
    verify()


# ---- meanwhile ----


def at(method, words, fn, nr=1):
    """fn, once: before the request with this number whose path has these words."""
    lock, left = threading.Lock(), [nr]

    def before(got, where):
        if got == method and re.search(words, where):
            with lock:
                left[0] -= 1
                if left[0] == 0:
                    fn()

    store.before = before


def old_state():
    """The manifest of a state that is CONTENT; a part of what it has is garbage."""
    opened("zeroes\nwrite 0 1M 1", "flush")
    old = manifest()
    remember()
    opened("write 0 512k 2", "write 0 128k 3", "write 0 64k 4")
    assert any(PREFIX + name in garbage()[0] for name in map_objects(old["map"]))
    return old


LISTS_MAPS, MANIFEST = "list-type=2.*map%2F", "/manifest$"


@check
def snapshot_made():
    """a writer makes a snapshot, or deletes one, after the lists: the new state counts"""
    old = old_state()
    kept = {PREFIX + name for name in map_objects(old["map"]) | {old["map"]}}
    # As no writer would: of a state that is garbage already.
    at("GET", MANIFEST, lambda: change_manifest(snapshots=[snapshot("s", old)]), 2)
    collected()
    assert kept <= keys()
    at("GET", MANIFEST, lambda: change_manifest(snapshots=[]), 2)
    assert PREFIX + old["map"] in collected("deleted [1-9]")


@check
def map_of_deleted():
    """the map of a snapshot that is deleted at that moment is missing: no error"""
    garbage_disk()
    old = "map/00000002.ab"
    change_manifest(snapshots=[{"name": "s", "map": old, "generation": 2, "time": 1}])
    at("GET", old, lambda: change_manifest(snapshots=[]))
    collected("deleted [1-9]")
    verify()


@check
def never_still():
    """a manifest that changes again and again: nothing is deleted"""
    garbage_disk()
    m, nr = manifest(), [0]

    def before(method, where):
        if method == "GET" and re.search(MANIFEST, where):
            nr[0] += 1
            change_manifest(snapshots=[snapshot(f"s{nr[0]}", m)])

    store.before = before
    untouched(1, "nothing was deleted: .*change again and again", ONE)
    assert 3 <= nr[0] <= 8


@check
def renewed():
    """a writer renews its lease all the time: no reason to begin again"""
    gone = garbage_disk()[0]
    nr = [0]

    def before(method, where):
        if method == "GET" and re.search(MANIFEST, where):
            nr[0] += 1
            change_manifest(owner="ab", host="h")

    store.before = before
    assert collected() == gone and nr[0] == 2


@check
def applied():
    """a snapshot is applied between the second look and the first DELETE"""
    old = old_state()
    change_manifest(snapshots=[snapshot("s", old)])

    def apply():
        m = manifest()
        body = content(old["map"])
        new = f"map/{m['generation'] + 1:08x}.ab"
        put(new, body[:20] + struct.pack("<I", m["generation"] + 1) + body[24:])
        change_manifest(map=new, generation=m["generation"] + 1)

    at("DELETE", "", apply)
    expect(0, "deleted [1-9]", ONE)
    store.before = None
    verify()
    collected("deleted [1-9]")
    verify()


def opens_at(method, words, nr=1):
    def fn():
        store.before = None
        opened(f"load {CONTENT}\nverify\nrandom 7 200\ndump {CONTENT}")

    at(method, words, fn, nr)


@check
def opened_meanwhile():
    """a writer opens the disk and writes it at any moment of it"""
    for method, words, nr in (("GET", MANIFEST, 1), ("GET", "/map/", 1), ("GET", "list-type=2.*o%2F", 1), ("GET", "list-type=2.*o%2F", 3),
                              ("GET", LISTS_MAPS, 1), ("GET", MANIFEST, 2), ("DELETE", "", 1), ("DELETE", "", 8)):
        with store.lock:
            store.objects = {}
        gone = garbage_disk()[0]
        opens_at(method, words, nr)
        expect(0, "deleted [1-9]", ONE)
        assert store.before is None, "it was opened"
        assert not gone & keys()
        verify()
        opened(f"load {CONTENT}\nverify")


@check
def held():
    """the store takes its time with the second look at the manifest: what changes until then counts"""
    old = old_state()
    kept = {PREFIX + name for name in map_objects(old["map"]) | {old["map"]}}

    def hold():
        store.command("fault hold 1 1500")
        threading.Timer(0.5, change_manifest, (), {"snapshots": [snapshot("s", old)]}).start()

    # Pages are of 5: the last one of maps is this one.
    at("GET", LISTS_MAPS, hold)
    collected()
    assert kept <= keys() and store.counts["faults"] > 0


@check
def stress():
    """writers die and open the disk again in a store that misbehaves, while it is collected again and again"""
    with store.lock:
        store.settings["chaos"] = "40"
    over = threading.Event()
    runs = []

    def collect():
        while not over.is_set():
            runs.append(gc(ONE))

    opened("zeroes\nwrite 0 1M 1")
    collector = threading.Thread(target=collect)
    collector.start()
    try:
        node_io(f"dump {CONTENT}\n" + "\n".join(f"random {i} 60\n{'crash' if i % 2 else 'close'}\nopen\nverify" for i in range(8)))
    finally:
        over.set()
        collector.join()
        with store.lock:
            store.settings["chaos"] = "0"
    assert len(runs) > 2 and all(run[0] == 0 for run in runs), runs
    assert any("deleted 0 objects" not in run[1] for run in runs), runs
    assert store.counts["violations"] == 0, store.last_violation


# ---- what goes wrong ----


@check
def refused():
    """the store refuses to delete: told, and the next run deletes the rest"""
    gone = garbage_disk()[0]
    before, faults = keys(), store.counts["faults"]

    def deny():
        store.command("fault xml -1 403:AccessDenied:no")

    at("DELETE", "", deny, 6)
    out = expect(1, "not all of it was deleted: .*403 AccessDenied", ONE)[1]
    assert 0 < len(before - keys()) < len(gone) and before - keys() < gone
    assert store.counts["faults"] - faults <= 4, "those that were under way, no more"
    assert f"deleted {len(objects_of(before - keys()))} object" in out, out
    store.command("fault none")
    store.before = None
    collected()
    assert before - keys() == gone
    verify()


@check
def away():
    """answers that are lost are asked for again; a store that stays away is an error"""
    gone = garbage_disk()[0]
    store.command("fault lost 3")
    at("DELETE", "", lambda: store.command("fault lost 5"), 3)
    assert collected() == gone
    store.down()
    brief = path("brief.yaml", f"name: vm\nbackend: {tree(', on_disconnect: fail')}\n")
    try:
        assert gc(brief)[0] == 1
    finally:
        store.up()


SAME = ("capital", "one", "space", "attribute", "namespace", "tags", "cdata", "comment", "reference", "nocount", "more")


def lists(name):
    with store.lock:
        store.settings["list"] = name


@check
def lists_otherwise():
    """a writer opens the disk, and it is collected, by lists that are written otherwise: all of it is there"""
    for name in SAME:
        with store.lock:
            store.objects = {}
        gone = garbage_disk()[0]
        lists(name)
        try:
            assert collected() == gone, name
            opened(f"load {CONTENT}\nverify\nwrite 64k 192k 9\ndump {CONTENT}", f"load {CONTENT}\nverify")
            collected("deleted [1-9]")
        finally:
            lists("")
        verify()


@check
def bad_lists():
    """a list that makes no sense, or lacks what is stored: the disk is not opened, nothing is deleted"""
    garbage_disk()
    for name in [name for name in s3_store.LISTS if name and name not in SAME] + ["stuck"]:
        lists(name)
        try:
            words = "the list of objects is not whole" if name in ("short", "lastnotoken", "none") else "the list of objects makes no sense"
            untouched(1, f"nothing was deleted: {words}: ", ONE)
            # Of the last generation there is one page.
            if name not in ("notoken", "last", "lastnotoken", "stuck"):
                done = subprocess.run([f"{BUILD}/test/node_io", "--queues", "1", "-", TREE], input="verify", capture_output=True, text=True,
                                      timeout=60)
                assert done.returncode == 3 and words in done.stdout + done.stderr, (name, done)
        finally:
            lists("")
    verify()
    collected("deleted [1-9]")
    verify()


@check
def lacking():
    """an object that a map names, or that was stored since, is not in the store: nothing is deleted"""
    garbage_disk()
    m = manifest()
    assert m["stored"] == {"generation": m["generation"], "objects": 1, "seq": 1, "even_holes": True}, m
    named, stored = min(map_objects(m["map"])), next(key for key in sorted(keys()) if f"/o/{m['generation']:08x}/" in key)[len(PREFIX):]
    for name in (named, stored):
        body = content(name)
        drop(name)
        untouched(1, "nothing was deleted: the list of objects is not whole: it has ", ONE)
        put(name, body)
    body = content(named)
    put(named, b"")
    untouched(1, "nothing was deleted: the list of objects is not whole: it has ", ONE)
    put(named, body)
    # A version before does not count what it stores.
    old = manifest()
    put("manifest", json.dumps({key: old[key] for key in old if key != "stored"}).encode())
    body = content(stored)
    drop(stored)
    untouched(0, "would delete [1-9]", ONE, "--dry-run")
    put(stored, body)
    collected("deleted [1-9]")
    verify()
    opened(f"load {CONTENT}\nverify")
    assert manifest()["stored"]["objects"] == 0


@check
def lacking_of_deleted():
    """an object of a snapshot that is deleted at that moment is missing: no error"""
    old = old_state()
    remember()
    change_manifest(snapshots=[snapshot("s", old)])
    gone = next(name for name in sorted(map_objects(old["map"])) if name not in map_objects(manifest()["map"]))

    def forget():
        drop(gone)
        change_manifest(snapshots=[])

    at("GET", "list-type=2.*o%2F", forget)
    collected("deleted [1-9]")
    verify()


# ---- configurations ----


@check
def configurations():
    """one device, several, a whole configuration, several disks of a device, errors"""
    garbage_disk()
    several = path("several.yaml", f'devices:\n- {{name: a, backend: {tree()}}}\n- {{name: b, backend: {s3_disk("b")}}}\n'
                   "- {name: c, backend: {type: mem, size: 1MiB}}\n")
    untouched(1, "several.yaml: a and b have disks of S3 objects: --device NAME", several)
    untouched(1, "no device named c with a backend s3-disk", several, "--device", "c")
    untouched(1, "no device named d with", several, "--device", "d")
    untouched(1, "s3://disks/b: .*there is no disk", several, "--device", "b")
    untouched(0, "would delete [1-9]", several, "--device", "a", "--dry-run")
    whole = path("whole.yaml", f"daemon: {{control: {tmp.name}/socket}}\ndevices:\n- name: a\n  backend: {tree()}\n")
    untouched(0, "would delete [1-9]", whole, "--dry-run")
    both = path("both.yaml", f'name: s\nbackend: {{type: stripe, backends: [{s3_disk()}, {s3_disk("b")}]}}\n')
    got = untouched(1, "s3://disks/b: .*there is no disk", both, "--dry-run", "--json")
    disks = json.loads(got[1])["disks"]
    assert [disk["error"] is None for disk in disks] == [True, False] and disks[0]["garbage"]["objects"] > 0, disks
    untouched(1, "none.yaml: No such file", path("none.yaml"))
    untouched(1, "bad.yaml:2:.*prefix", path("bad.yaml", "name: vm\nbackend: {type: s3-disk, bucket: disks}\n"))
    untouched(1, "no device with a backend s3-disk", path("mem.yaml", "name: vm\nbackend: {type: mem, size: 1MiB}\n"))
    done = subprocess.run([f"{BUILD}/bin/ublkctl", "s3-gc", "-", "--dry-run"], input=f"name: vm\nbackend: {tree()}\n", capture_output=True,
                          text=True)
    assert done.returncode == 0 and "would delete" in done.stdout, done


@check
def terminal():
    """progress is shown on a terminal alone"""
    garbage_disk()
    store.settings["delay_ms"] = "30"
    master, slave = pty.openpty()
    try:
        done = subprocess.run([f"{BUILD}/bin/ublkctl", "s3-gc", ONE], stdout=subprocess.PIPE, stderr=slave, text=True, timeout=60)
        shown = os.read(master, 1 << 16).decode()
    finally:
        store.settings["delay_ms"] = "0"
        os.close(slave)
        os.close(master)
    assert done.returncode == 0 and re.search(r"\r\x1b\[Kdeleting: \d+ objects, \d+ of them garbage, \d+ deleted", shown), shown
    assert shown.endswith("\r\x1b[K"), shown
    assert gc(ONE)[2] == ""


os._exit(tap.end())
