#!/usr/bin/env python3
"""ublkctl attach and detach against a ublkd that is played: what is asked of it, in which order, what is printed, and
which snippets are there at each step. Prints TAP. Usage: attach.py BIN_FOLDER"""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the tree stays clean
import tap  # noqa: E402

BIN = os.path.realpath(sys.argv[1])
tmp = tempfile.TemporaryDirectory(prefix="ublkd-attach.")
SOCKET = os.path.join(tmp.name, "socket")
FOLDER = os.path.join(tmp.name, "devices.d")
DISK = os.path.join(tmp.name, "disk.img")
NODE = "/dev/ublkb77"  # nobody has it


class Daemon:
    """Has devices; keeps what it was asked, and what was in the folder then."""

    def __init__(self):
        self.devices, self.folder, self.refuse, self.before_add = {}, None, None, None
        self.wants_blocks, self.notes = None, []
        self.asked, self.seen = [], []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(SOCKET)
        listener.listen(16)
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            with listener.accept()[0] as client, client.makefile("r") as lines:
                for line in lines:
                    client.sendall(json.dumps(self.answer(json.loads(line))).encode() + b"\n")

    def answer(self, request):
        command = request["command"]
        self.asked.append(request)
        self.seen.append(sorted(os.listdir(FOLDER)) if os.path.isdir(FOLDER) else None)
        if command == "add" and self.before_add:
            self.before_add()
        if command == "add" and self.wants_blocks and self.wants_blocks not in request["yaml"]:
            words = f"disk: cannot serve blocks of 512 bytes: set {self.wants_blocks}"
            return {"ok": False, "error": words, "errors": [words]}
        if command in ("add", "del") and self.refuse:
            return {"ok": False, "error": self.refuse, "errors": [f"<attach>:1:7: {self.refuse}"]}
        data = {}
        if command == "list":
            data = list(self.devices.values())
        elif command == "settings":
            data = {"config": "/etc/x.yaml", "devices_dir": self.folder}
        elif command == "add":
            name = re.search(r'^name: "(.*)"$', request["yaml"], re.M).group(1)
            self.devices[name] = {"name": name, "path": NODE, "id": 77, "from_file": False}
            data = {"devices": [name], "notes": [f"{name}: {note}" for note in self.notes]}
        elif command == "show":
            data = self.devices[request["name"]]
        elif command == "del":
            del self.devices[request["name"]]
        return {"ok": True, "data": data}

    def yaml(self):
        return [request["yaml"] for request in self.asked if request["command"] == "add"]


daemon = Daemon()


def check(fn):
    """Runs fn on a fresh daemon and an empty folder; its documentation is the name of the check."""
    daemon.__dict__.update(devices={"own": {"name": "own", "path": "/dev/ublkb5", "id": 5, "from_file": True}},
                           folder=None, refuse=None, before_add=None, wants_blocks=None, notes=[], asked=[], seen=[])
    subprocess.run(["rm", "-rf", FOLDER], check=True)
    tap.run(fn)


def ctl(*words, cwd=tmp.name):
    done = subprocess.run([f"{BIN}/ublkctl", "--socket", SOCKET, *words], capture_output=True, text=True, timeout=60,
                          errors="replace", cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def expect(code, words, *command, **more):
    got = ctl(*command, **more)
    assert got[0] == code and re.search(words, got[2]), got
    return got


def put(name, text):
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        file.write(text)


with open(DISK, "wb") as disk:
    disk.truncate(1 << 20)


@check
def usage():
    """wrong command lines are exit code 2"""
    expect(2, "a file, a block device or a URI is missing", "attach")
    expect(2, "name or the path of a device is missing", "detach")
    expect(2, "--queues needs a number of at least 1, not 0", "attach", DISK, "--queues", "0")
    expect(2, "has other characters than letters", "attach", DISK, "--name", "a b")
    expect(2, "begins with a dot", "attach", DISK, "--name", ".a")
    expect(2, "at most 31 characters, not x{32}", "attach", DISK, "--name", "x" * 32)
    expect(2, "an option does not apply to list", "list", "--persist")
    expect(2, "an option does not apply to detach", "detach", "a", "--read-only")
    expect(2, "unexpected argument: b", "attach", "a", "b")
    assert daemon.asked == []


@check
def refused_words():
    """what cannot be is refused before ublkd is asked"""
    expect(1, f"^ublkctl: {tmp.name}/none: No such file or directory\n$", "attach", tmp.name + "/none")
    expect(1, r'unknown scheme "ndb" \(did you mean "nbd"\?\)', "attach", "ndb://host/x")
    expect(1, r'unknown scheme "gopher": give the path of a file or a block device, or a URI of .*nbd\+unix', "attach",
           "gopher://host/x")
    assert daemon.asked == []


@check
def device_is_late():
    """what is asked of ublkd; a node that never comes"""
    start = time.monotonic()
    got = expect(1, f"the device disk.img is attached, but after 10 s: {NODE}: No such file", "attach", DISK)
    assert 9 < time.monotonic() - start < 30 and got[1] == ""
    assert [request["command"] for request in daemon.asked] == ["list", "add", "show"]
    assert daemon.yaml() == [f'name: "disk.img"\nbackend:\n  type: file\n  path: "{DISK}"\n']


def attach(*words, code=1, **more):
    """attach, with a ublkd whose device is gone at once: nobody waits for a node"""
    answer = daemon.answer
    daemon.answer = lambda request: ({"ok": True, "data": {"path": None}} if request["command"] == "show"
                                     else answer(request))
    try:
        return expect(code, "", "attach", *words, **more)
    finally:
        del daemon.answer


@check
def relative():
    """a relative path becomes absolute; options"""
    assert "not live any more" in attach("disk.img", "--read-only", "--queues", "3", "--name", "n")[2]
    attach("./disk.img", "--name", "m")
    attach("etc/passwd", cwd="/")
    assert daemon.yaml() == [
        f'name: "n"\nqueues: 3\nread_only: true\nbackend:\n  type: file\n  path: "{DISK}"\n',
        f'name: "m"\nbackend:\n  type: file\n  path: "{tmp.name}/./disk.img"\n',
        'name: "passwd"\nbackend:\n  type: file\n  path: "/etc/passwd"\n']


@check
def uri():
    """a URI stays as it is"""
    attach("nbd+unix:///a%20b?socket=/run/x")
    assert daemon.yaml() == ['name: "a-b"\nbackend:\n  type: nbd\n  uri: "nbd+unix:///a%20b?socket=/run/x"\n']
    attach("nbd:unix:/run/x y:exportname=vms/disk")
    assert daemon.yaml()[1:] == ['name: "disk"\nbackend:\n  type: nbd\n  uri: "nbd:unix:/run/x y:exportname=vms/disk"\n']


@check
def relative_sockets():
    """the socket of an NBD server counts from the client's folder"""
    attach("nbd:unix:k.sock")
    attach("nbd:unix:k.sock:exportname=a")
    attach("nbd+unix:///b?socket=k.sock")
    attach("nbds+unix:///c?tls-type=x509&socket=./k.sock")
    folder = os.path.join(tmp.name, "a&b c%")
    os.makedirs(folder, exist_ok=True)
    attach("nbd+unix:///d?socket=k.sock&tls-type=psk", cwd=folder)
    attach("nbd+unix:///e?socket=k.sock", cwd="/")
    attach("nbd+unix:///f?socket=%2Fk.sock")
    attach("nbd://host/g?socket")
    assert [re.search('name: "(.*)"', yaml)[1] for yaml in daemon.yaml()] == ["k.sock"] + list("abcdefg")
    assert [re.search('uri: "(.*)"', yaml)[1] for yaml in daemon.yaml()] == [
        f"nbd:unix:{tmp.name}/k.sock", f"nbd:unix:{tmp.name}/k.sock:exportname=a", f"nbd+unix:///b?socket={tmp.name}/k.sock",
        f"nbds+unix:///c?tls-type=x509&socket={tmp.name}/./k.sock",
        f"nbd+unix:///d?socket={tmp.name}/a%26b%20c%25/k.sock&tls-type=psk", "nbd+unix:///e?socket=/k.sock",
        "nbd+unix:///f?socket=%2Fk.sock", "nbd://host/g?socket"]


@check
def words():
    """what is not there, and a name that is not UTF-8, are told in words"""
    assert "/none: it cannot be found: No such file or directory" in expect(1, "", "cache", "store", "/none")[2]
    assert "a name on the command line is not UTF-8" in expect(1, "", "show", b"\xff")[2]


def image(name, *words):
    path = os.path.join(tmp.name, name)
    subprocess.run(["rm", "-f", path], check=True)
    expect(0, "", "create-image", path, "--size", "1MiB", *words)
    return path


def yaml_of_image(name, path):
    return f'name: "{name}"\nbackend:\n  type: qcow2\n  backing: auto\n  data:\n    type: file\n    path: "{path}"\n'


@check
def image_words():
    """an image is served by its name's end, or by qcow2: before it; --raw: the file"""
    path = image("vm.qcow2")
    os.rename(image("x.qcow2"), DISK + ".x")
    attach(path)
    attach("QCOW2:disk.img.x")
    got = attach("vm.qcow2", "--raw", "--name", "raw")
    assert "looks like" not in got[2], got
    assert daemon.yaml() == [yaml_of_image("vm.qcow2", path), yaml_of_image("disk.img.x", DISK + ".x"),
                             f'name: "raw"\nbackend:\n  type: file\n  path: "{path}"\n']


@check
def image_inside():
    """a file that only begins like an image is served as it is, and a hint says so"""
    os.rename(image("x.qcow2"), DISK + ".x")
    got = attach(DISK + ".x")
    assert f"looks like a qcow2 image, and its bytes are served as they are: attach qcow2:{DISK}.x" in got[2], got
    assert daemon.yaml() == [f'name: "disk.img.x"\nbackend:\n  type: file\n  path: "{DISK}.x"\n']


@check
def no_image():
    """what is no image, or one that wants more than attach can say, is refused before ublkd is asked"""
    plain, data = os.path.join(tmp.name, "plain.qcow2"), os.path.join(tmp.name, "d.data")
    with open(plain, "wb") as file:
        file.truncate(1 << 20)
    expect(1, "is named as a qcow2 image, and is none: --raw serves", "attach", plain)
    expect(1, "is no qcow2 image: ublkctl create-image makes one", "attach", "qcow2:" + plain)
    with open(plain, "r+b") as file:
        file.write(b"QFI\xfb\0\0\0\x03")
    expect(1, "cannot be served: clusters have 2.0 bytes", "attach", plain)
    expect(1, "none.qcow2: No such file or directory: --size SIZE makes a new image", "attach", "none.qcow2")
    for url in "http://127.0.0.1:1/vm.qcow2", "nbd+unix:///?socket=/none", "nbd:unix:/none":
        expect(1, re.escape(url) + ": attach takes an image in a file alone: one behind a URL goes by ublkctl add -f", "attach", "qcow2:" + url)
    expect(1, "attach takes an image in a file alone", "attach", "qcow2:http://127.0.0.1:1/vm", "--size", "1M")
    expect(1, "has its data in another file: name that as data_file", "attach", image("d.qcow2", "--data-file", data))
    expect(2, "--raw is for the path of a file alone", "attach", "qcow2:" + plain, "--raw")
    expect(2, "--raw is for the path of a file alone", "attach", "nbd://host/x", "--raw")
    expect(2, "--size and --backing are for an image in a file", "attach", "nbd://host/x", "--size", "1M")
    expect(2, "does not apply to attach", "attach", plain, "--cluster-size", "4096")
    assert daemon.asked == []


@check
def new_image():
    """--size makes the image first, over --backing; one that is there stays as it is"""
    path = os.path.join(tmp.name, "new.qcow2")
    expect(1, "disk.new: --size and --backing make a new image: name it", "attach", "disk.new", "--size", "1M")
    got = attach("new.qcow2", "--backing", "disk.img")
    assert "its format were raw" in got[2] and daemon.yaml() == [yaml_of_image("new.qcow2", path)], got
    with open(path, "rb") as file:
        before = file.read()
    assert before[:4] == b"QFI\xfb" and int.from_bytes(before[24:32], "big") == 1 << 20
    expect(1, "new.qcow2 is there already: without --size", "attach", path, "--size", "2M")
    with open(path, "rb") as file:
        assert file.read() == before
    os.makedirs(os.path.join(tmp.name, "sub"), exist_ok=True)
    attach("sub/over.qcow2", "--backing", path)
    attach("sub/over.qcow2", "--backing-folder", "/usr/../tmp", "--name", "n")
    folder = '  backing: auto\n  backing_folder: "%s"\n'
    over = yaml_of_image("over.qcow2", os.path.join(tmp.name, "sub/over.qcow2"))
    assert daemon.yaml()[1:] == [over.replace("  backing: auto\n", folder % tmp.name),
                                 over.replace("over", "n", 1).replace("n.qcow2", "n", 1)
                                 .replace("  backing: auto\n", folder % "/tmp")], daemon.yaml()
    expect(1, "none: No such file|cannot be the backing folder", "attach", path, "--backing-folder", "none")
    expect(2, "--backing-folder is for an image", "attach", DISK, "--backing-folder", "/tmp")
    expect(1, "none.img: No such file", "attach", "other.qcow2", "--backing", "none.img")
    assert not os.path.exists(os.path.join(tmp.name, "other.qcow2")) and len(daemon.yaml()) == 3


@check
def names():
    """a name that is taken gets a number, also one of a file in the folder"""
    daemon.devices["disk.img"] = {"name": "disk.img"}
    attach(DISK)
    daemon.folder = FOLDER
    put("disk.img-3.yaml", "")
    attach(DISK, "--persist")
    assert list(daemon.devices) == ["own", "disk.img", "disk.img-2", "disk.img-4"]


@check
def faster():
    """somebody takes the name that was chosen: another one, and nobody hears of it"""
    daemon.folder = FOLDER
    steal = iter(["disk.img", "disk.img-2", None])

    def others():
        name = next(steal)
        if name:
            daemon.devices[name] = {"name": name}
            daemon.refuse = f'name: "{name}" is taken already (live)'
        else:
            daemon.refuse = None

    daemon.before_add = others
    got = attach(DISK, "--persist")
    assert "taken" not in got[2] and list(daemon.devices) == ["own", "disk.img", "disk.img-2", "disk.img-3"], got
    assert os.listdir(FOLDER) == ["disk.img-3.yaml"]
    # A name that was given is not exchanged.
    daemon.before_add = None
    daemon.refuse = 'name: "disk.img" is taken already (live)'
    expect(1, "is taken already", "attach", DISK, "--name", "disk.img")
    # A device that is late has its name by us.
    daemon.before_add = lambda: daemon.devices.update(passwd={"name": "passwd"})
    daemon.refuse = "passwd: is not done yet; it goes on"
    expect(1, "not done yet", "attach", "/etc/passwd")


@check
def larger_blocks():
    """storage with larger blocks: the cure of the daemon is followed, and kept"""
    daemon.folder, daemon.wants_blocks = FOLDER, "block_size: 4096"
    got = attach(DISK, "--persist")
    assert "cannot serve" not in got[2] and list(daemon.devices) == ["own", "disk.img"], got
    assert ["block_size: 4096\n" in yaml for yaml in daemon.yaml()] == [False, True], daemon.yaml()
    with open(os.path.join(FOLDER, "disk.img.yaml"), encoding="utf-8") as file:
        assert file.read().endswith(daemon.yaml()[1])
    # Once.
    daemon.wants_blocks = "block_size: 4096 perhaps"
    expect(1, "set block_size: 4096 perhaps", "attach", DISK)
    assert len(daemon.yaml()) == 4


@check
def notes():
    """what the daemon has to say of the device is told"""
    daemon.notes = ["the storage ends within a block of 512 bytes: its last 419 bytes are left out"]
    got = attach(DISK)
    assert f"ublkctl: disk.img: {daemon.notes[0]}\n" in got[2], got


@check
def strange_characters():
    """any character in a path"""
    path = os.path.join(tmp.name, "\"q'\\ : #{}\n\t\u00fc\U0001f4be")
    with open(path, "wb"):
        pass
    attach(path)
    assert list(daemon.devices) == ["own", "q" + 12 * "-"], daemon.devices
    assert json.loads(re.search(r"path: (.*)\n", daemon.yaml()[0]).group(1)) == path
    raw = os.path.join(os.fsencode(tmp.name), b"\xff")
    with open(raw, "wb"):
        pass
    expect(1, "not valid UTF-8", "attach", raw)


@check
def no_folder():
    """--persist without a folder: the cure"""
    expect(1, "set devices_dir in the section daemon of /etc/x.yaml, for example to /etc/ublkd/devices.d", "attach",
           DISK, "--persist")
    assert [request["command"] for request in daemon.asked] == ["settings"]


@check
def persist():
    """--persist: the snippet is there when the device is live, not before"""
    daemon.folder = FOLDER
    attach(DISK, "--persist", "--read-only")
    commands = [request["command"] for request in daemon.asked]
    assert commands == ["settings", "list", "add"], commands
    assert len(daemon.seen[2]) == 1 and daemon.seen[2][0].startswith(".disk.img"), daemon.seen
    assert os.listdir(FOLDER) == ["disk.img.yaml"]
    path = os.path.join(FOLDER, "disk.img.yaml")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text == "# Written by ublkctl attach; removed by ublkctl detach disk.img.\n" + daemon.yaml()[0]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644 and stat.S_IMODE(os.stat(FOLDER).st_mode) == 0o755


@check
def persist_refused():
    """--persist: nothing is left of what ublkd refuses"""
    daemon.folder, daemon.refuse = FOLDER, "no"
    expect(1, "^<attach>:1:7: no\n$", "attach", DISK, "--persist")
    assert os.listdir(FOLDER) == []


@check
def persist_taken():
    """--persist never replaces a file"""
    daemon.folder = FOLDER
    put("x.yaml", "mine")
    expect(1, "x.yaml exists already: choose another --name", "attach", DISK, "--persist", "--name", "x")
    assert [request["command"] for request in daemon.asked] == ["settings"] and os.listdir(FOLDER) == ["x.yaml"]


@check
def detach():
    """detach by name, by /dev/ublkd/NAME, by the node, by a link to it"""
    link = os.path.join(tmp.name, "link")
    os.symlink("/dev/null", link)
    for word in ("d", "/dev/ublkd/d", "/dev/null", link):
        daemon.devices["d"] = {"name": "d", "path": "/dev/null"}
        got = expect(0, "^$", "detach", word)
        assert got[1] == "" and list(daemon.devices) == ["own"]
    assert [r["force"] for r in daemon.asked if r["command"] == "del"] == [False] * 4
    daemon.devices["d"] = {"name": "d", "path": "/dev/null"}
    expect(0, "^$", "detach", "d", "--force")
    assert daemon.asked[-2]["force"] is True
    for word in ("none", "/dev/ublkd/none", "/dev/zero", "/dev/ublkb1234", "", "../d", "/dev/ublkd/../d"):
        expect(1, f"ublkd has no device {re.escape(word)}: ublkctl list shows all", "detach", word)


@check
def detach_kept():
    """detach removes the snippet when the device is gone, not before"""
    daemon.folder = FOLDER
    daemon.devices["d"] = {"name": "d", "from_file": True}
    put("d.yaml", "name: d\n")
    put("e.yaml", "name: e\n")
    daemon.refuse = "in use"
    expect(1, "in use", "detach", "d")
    assert sorted(os.listdir(FOLDER)) == ["d.yaml", "e.yaml"]
    daemon.refuse = None
    expect(0, "^$", "detach", "d")
    assert os.listdir(FOLDER) == ["e.yaml"] and list(daemon.devices) == ["own"]
    assert daemon.seen[[r["command"] for r in daemon.asked].index("del")] == ["d.yaml", "e.yaml"]
    expect(0, "^$", "detach", "e")  # it has only its snippet
    assert os.listdir(FOLDER) == []


@check
def detach_others():
    """detach keeps a snippet that holds more, and says what brings the device back"""
    daemon.folder = FOLDER
    put("own.yaml", "- name: own\n- name: other\n")
    expect(1, 'own.yaml holds more than the device "own": it stays', "detach", "own")
    assert os.listdir(FOLDER) == ["own.yaml"] and not daemon.devices
    daemon.devices["own"] = {"name": "own", "from_file": True}
    os.unlink(os.path.join(FOLDER, "own.yaml"))
    expect(0, f"own is still in the configuration, .*: remove it from /etc/x.yaml, or from a file in {FOLDER}", "detach",
           "own")


sys.exit(tap.end())
