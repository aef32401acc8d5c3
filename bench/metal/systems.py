"""What is measured: each system makes a block device and removes it again. A context keeps all that was begun.

A system that this machine does not have raises Refused with the reason; the others are measured without it.
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
DEPTH = 128  # of each queue: kublk's most common, and the default of ublksrv and rublk
START_SECONDS = 30


class Refused(Exception):
    """Why a system is not measured, in words."""


def run(*command, seconds=START_SECONDS):
    """Runs a command that ends soon; its output. Refused with its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise Refused(f"{os.path.basename(command[0])} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{os.path.basename(command[0])} does not end within {seconds} s") from None
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines()
        raise Refused(f"{os.path.basename(command[0])}: {lines[-1] if lines else 'exit code %d' % done.returncode}")
    return done.stdout


def wait_for(what, is_there, seconds=START_SECONDS):
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            raise Refused(f"{what} does not come within {seconds} s")
        time.sleep(0.01)


class Context:
    """One set of systems at a time, for so many jobs: where they are, and what ends them."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.jobs = 1
        self.ends = []  # functions, called from the last to the first

    def path(self, name):
        return os.path.join(self.folder, name)

    def at_end(self, function, *arguments):
        self.ends.append((function, arguments))

    def end(self):
        while self.ends:
            function, arguments = self.ends.pop()
            try:
                function(*arguments)
            except Refused as why:
                print(f"metal: {why}", flush=True)

    def file(self, name):
        """A file of its own for each system: made once, all of it written."""
        path = os.path.join(self.options.dir, f"ublkd-metal.{name}")
        size = self.options.size_bytes
        if not os.path.exists(path) or os.path.getsize(path) != size:
            block = bytes(1 << 20)
            with open(path, "wb") as file:
                for _ in range(size >> 20):
                    file.write(block)
                os.fsync(file.fileno())
        return path


def spawn(context, name, *command):
    """A server in the foreground, which ends with the context."""
    try:
        with open(context.path(f"{name}.log"), "w", encoding="utf-8") as log:
            # pylint: disable=consider-using-with
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Refused(f"{os.path.basename(command[0])} is not installed") from None
    context.at_end(end_process, process)
    return process


def end_process(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---- ublkd: one daemon with all of its devices ----


class Ublkd:
    """The daemon of a context: a reactor for each job, on the first CPUs that it may use."""

    def __init__(self, context):
        self.context = context
        self.socket = context.path("control.sock")
        self.ids = {}

    def start(self, backends):
        """backends: of each device, in YAML. Those that do not start are told by device()."""
        cpus = sorted(os.sched_getaffinity(0))[: self.context.jobs]
        config = self.context.path("ublkd.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"daemon: {{reactors: {cpus}, control: {self.socket}}}\ndevices:\n")
            for name, backend in backends.items():
                file.write(f"  - {{name: {name}, queues: {self.context.jobs}, depth: {DEPTH}, backend: {backend}}}\n")
        process = spawn(self.context, "ublkd", self.context.options.program("ublkd"), "--config", config)
        wait_for("ublkd", lambda: process.poll() is not None or self.list() is not None)
        if process.poll() is not None:
            raise Refused(f"ublkd ended at once: {self.last_line()}")
        wait_for("a device of ublkd", lambda: all(d["state"] != "starting" for d in self.list() or [{"state": "starting"}]))

    def last_line(self):
        with open(self.context.path("ublkd.log"), encoding="utf-8") as file:
            return (file.read().strip().splitlines() or ["it says nothing"])[-1]

    def list(self):
        command = [self.context.options.program("ublkctl"), "--socket", self.socket, "--json", "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None
        answer = json.loads(done.stdout)
        return answer["devices"] if isinstance(answer, dict) else answer

    def device(self, name):
        for device in self.list() or []:
            if device["name"] == name and device["state"] == "live":
                return device["path"]
            if device["name"] == name:
                raise Refused(f"ublkd: {device['error'] or device['state']}")
        raise Refused("ublkd does not answer")


def ublkd_backends(context, wanted):
    """Of the systems that are wanted, the devices of the daemon."""
    backends = {}
    if "ublkd-null" in wanted:
        backends["null"] = "{type: null, size: %d}" % context.options.size_bytes
    if "ublkd-mem" in wanted:
        backends["mem"] = "{type: mem, size: %d}" % context.options.size_bytes
    if "ublkd-file" in wanted:
        backends["file"] = "{type: file, path: %s}" % json.dumps(context.file("ublkd"))
    if "ublkd-nbd" in wanted:
        backends["nbd"] = '{type: nbd, uri: "nbd+unix:///?socket=%s", connections: %d}' % (nbd_server(context), context.jobs)
    return backends


# ---- the kernel's own ----


def start_loop(context):
    run("modprobe", "loop")
    device = run("losetup", "--find", "--show", "--direct-io=on", context.file("loop")).strip()
    context.at_end(run, "losetup", "-d", device)
    with open(f"/sys/block/{os.path.basename(device)}/loop/dio", encoding="utf-8") as file:
        if file.read().strip() != "1":
            raise Refused("the file system gives loop no direct I/O")
    return device


def start_null_blk(context):
    fresh = not os.path.exists("/dev/nullb0")
    if not fresh:
        raise Refused("null_blk is in use")
    run("modprobe", "null_blk", "nr_devices=1", f"submit_queues={context.jobs}", f"hw_queue_depth={DEPTH}", "gb=1")
    context.at_end(run, "rmmod", "null_blk")
    wait_for("/dev/nullb0", lambda: os.path.exists("/dev/nullb0"))
    return "/dev/nullb0"


def nbd_server(context):
    """nbdkit's memory, by one server for each client."""
    number = len(glob.glob(context.path("nbd-*.sock")))
    socket = context.path(f"nbd-{number}.sock")
    process = spawn(context, f"nbdkit-{number}", "nbdkit", "-f", "-U", socket, "memory", str(context.options.size_bytes))
    wait_for("nbdkit", lambda: process.poll() is not None or os.path.exists(socket))
    if process.poll() is not None:
        raise Refused("nbdkit ended at once")
    context.at_end(lambda: os.path.exists(socket) and os.unlink(socket))
    return socket


def start_nbd_ko(context):
    run("modprobe", "nbd")
    free = [d for d in sorted(glob.glob("/dev/nbd[0-9]*")) if re.fullmatch(r"/dev/nbd\d+", d)
            and not os.path.exists(f"/sys/block/{os.path.basename(d)}/pid")]
    if not free:
        raise Refused("no /dev/nbdN is free")
    run("nbd-client", "-unix", nbd_server(context), free[0], "-C", str(context.jobs))
    context.at_end(run, "nbd-client", "-d", free[0])
    return free[0]


# ---- other ublk servers ----


def free_id():
    """A number that no ublk device has."""
    number = 100
    while os.path.exists(f"/dev/ublkc{number}"):
        number += 1
    return number


def start_other(context, program, kind, flags=(), file_flag=None, file=None):
    """Servers whose command is: PROGRAM add KIND -n ID -q QUEUES -d DEPTH FLAGS FILE."""
    number = free_id()
    command = [program, "add", *kind, "-n", str(number), "-q", str(context.jobs), "-d", str(DEPTH), *flags]
    if file:
        command += [file_flag, file] if file_flag else [file]
    device = f"/dev/ublkb{number}"
    context.at_end(lambda: os.path.exists(f"/dev/ublkc{number}") and run(program, "del", "-n", str(number)))
    run(*command)
    wait_for(device, lambda: os.path.exists(device), 5)
    return device


# Of UBLK_F_*: an older driver ignores what it does not know.
KUBLK_FLAGS = {"-u": 1 << 7, "--auto_zc": 1 << 11, "-b": 1 << 15}


def start_kublk(context, kind, flags, file=None):
    program = context.options.kublk()
    device = start_other(context, program, ["-t", kind], flags, None, context.file(file) if file else None)
    has = re.search(r" flags 0x([0-9a-f]+)", run(program, "list", "-n", device.removeprefix("/dev/ublkb")))
    for flag in flags:
        if not has or not int(has[1], 16) & KUBLK_FLAGS[flag]:
            raise Refused(f"this kernel's driver has no mode {flag} of kublk")
    return device


def start_installed(context, program, kind, file=None):
    path = shutil.which(program)
    if not path:
        raise Refused(f"{program} is not installed")
    return start_other(context, path, kind, (), "-f", context.file(file) if file else None)


# name: (family, function that starts it); ublkd's are in one daemon, and stand first in their family
SYSTEMS = {
    "ublkd-null": ("null", None),
    "kublk-null": ("null", lambda c: start_kublk(c, "null", ["-u"])),
    # with -u and -b together it hangs
    "kublk-null+batch": ("null", lambda c: start_kublk(c, "null", ["--auto_zc", "-b"])),
    "ublksrv-null": ("null", lambda c: start_installed(c, "ublk", ["-t", "null"])),
    "rublk-null": ("null", lambda c: start_installed(c, "rublk", ["null"])),
    "null_blk": ("null", start_null_blk),
    "ublkd-mem": ("mem", None),
    "ublkd-file": ("file", None),
    "loop": ("file", start_loop),
    "kublk-loop": ("file", lambda c: start_kublk(c, "loop", ["--auto_zc"], "kublk")),
    "kublk-loop+batch": ("file", lambda c: start_kublk(c, "loop", ["--auto_zc", "-b"], "kublk-batch")),
    "ublksrv-loop": ("file", lambda c: start_installed(c, "ublk", ["-t", "loop"], "ublksrv")),
    "rublk-loop": ("file", lambda c: start_installed(c, "rublk", ["loop"], "rublk")),
    "ublkd-nbd": ("nbd", None),
    "nbd-ko": ("nbd", start_nbd_ko),
}
# No server: what a server can come near to, but no rival.
BOUNDS = {"null_blk"}


def start_all(context, wanted):
    """Returns {system: device}, {system: why not}."""
    devices, refused = {}, {}
    ours = [name for name in wanted if SYSTEMS[name][1] is None]
    daemon = Ublkd(context)
    try:
        if ours:
            daemon.start(ublkd_backends(context, ours))
    except Refused as why:
        refused.update(dict.fromkeys(ours, str(why)))
    for name in wanted:
        if name in refused:
            continue
        try:
            start = SYSTEMS[name][1]
            devices[name] = start(context) if start else daemon.device(name.removeprefix("ublkd-"))
        except Refused as why:
            refused[name] = str(why)
    return devices, refused
