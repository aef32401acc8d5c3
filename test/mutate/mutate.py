#!/usr/bin/env python3
"""Puts in one defect after the other and looks which test sees it. Prints TAP.

    mutate.py [--only PATTERN] [--part K/N] [--jobs N] [--list]

The defects are in *.defects beside this file; docs/hacking.md says how to add one. Each is put into a
copy of the tree (build/mutate/N). The programs that link the file are built again and run, what the entry
calls `first:` before the others, until one check fails that passes without the defect (build/mutate/without),
or a program crashes or hangs. Without --only nine of ten must be caught. A defect that no test catches fails
the run, unless its entry says why.
"""
import argparse
import collections
import glob
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = "build/asan"
CAUGHT_MIN_PERCENT = 90
BUILD_SECONDS_MAX = 1200

# What takes less without a defect and more than this with it hangs.
HANG_SECONDS_MIN = 20
HANG_TIMES = 10

# Programs that print TAP: arguments, how long they may take.
SIM = ("sim --only-runs --runs 96 --ios 1000 --jobs 1", 300)
SIM_CUTS = ("sim --cuts --jobs 1", 300)
CONFORMANCE = ("conformance --ios 300", 300)
NBD_FAULTS = ("nbd_faults", 600)
NVME_FAULTS = ("nvme_faults", 600)
UNIT_SECONDS = 60
FIRST_SECONDS = 300
STEPS = ("file_steps", "queue_steps", "reactor_steps", "cache_drops", "cache_asides", "cache_versions", "cache_unknown", "cache_warms", "qcow2_look", "qcow2_snapshots", "fuzz_yaml",
         "fuzz_nbd_handshake", "fuzz_nbd_reply",
         "fuzz_nvme_fabrics", "fuzz_nvme_pdu", "fuzz_qcow2_decompress", "fuzz_qcow2_header", "fuzz_qcow2_luks",
         "fuzz_qcow2_snapshot", "fuzz_s3_list", "fuzz_s3_manifest", "fuzz_s3_map", "fuzz_s3_refusal")
# Scripts: the programs (or other targets) that they use, a pattern for the files that they are about.
Script = collections.namedtuple("Script", "command programs files seconds")
SCRIPTS = [
    Script(f"test/cli/cli.sh {BUILD}/bin", ["ublkd", "ublkctl", "ublktrace", "ublkd-keeper", "man/ublkd.yaml.5"],
           r"(config|daemon|ublkctl|ublktrace|base)/", 120),
    Script(f"test/trace/timeline.sh {BUILD}", ["synth", "ublktrace"], r"(ublktrace|tracefile)/", 200),
    Script(f"test/cli/top.py {BUILD}/bin", ["ublkctl"], r"ublkctl/(top/|sample)", 120),
    Script(f"test/cli/attach.py {BUILD}/bin", ["ublkctl"], r"ublkctl/(ctl_attach|ctl_image|attach_words|client|node_wait|snippet)", 120),
    Script(f"test/cli/cache.py {BUILD}/bin", ["ublkctl"], r"ublkctl/(ctl_cache|client)", 120),
    Script(f"test/cli/create_image.sh {BUILD}/bin", ["ublkctl"], r"ublkctl/(image/|ctl_image)", 120),
    Script(f"test/interop/nbd_info.sh {BUILD}/bin", ["ublkctl"], r"ublkctl/ctl_nbd|backends/nbd/", 120),
    Script(f"test/interop/nvme_discover.sh {BUILD}/bin", ["ublkctl"],
           r"ublkctl/ctl_nvme|backends/nvme/(protocol/)?nvme_(discovery|examine|host)", 120),
    Script("test/interop/nvme_target_test.py", [], r"test/interop/nvme_(?!host|target_test)", 120),
    Script("test/bench/report.sh", [], r"bench/", 60),
    Script("test/bench/host.sh", [], r"bench/", 120),
]


class Bad(Exception):
    """The list or the tree is wrong: no word about the tests."""


class Defect:
    def __init__(self, name, where):
        self.name, self.where = name, where
        self.file = self.kind = self.first = self.survives = ""
        self.before, self.after = [], []

    def text(self, lines):
        return "".join(line + "\n" for line in lines)

    def put_in(self, source):
        """The text of the file with the defect."""
        count = source.count(self.text(self.before))
        if count != 1:
            raise Bad(f"defect {self.name} ({self.where}): its text stands {count} times in {self.file}, not once")
        return source.replace(self.text(self.before), self.text(self.after))


def read_defects(path):
    defects, name = [], os.path.relpath(path, TOP)
    for number, line in enumerate(open(path, encoding="utf-8").read().splitlines(), 1):
        if line.startswith("== "):
            defects.append(Defect(line[3:].strip(), f"{name}:{number}"))
        elif not line or line.startswith("#"):
            continue
        elif not defects:
            raise Bad(f"{name}:{number}: a defect begins with \"== NAME\"")
        elif line[0] in "-+":
            (defects[-1].before if line[0] == "-" else defects[-1].after).append(line[1:])
        else:
            key, colon, value = line.partition(":")
            if not colon or key not in ("file", "kind", "first", "survives"):
                raise Bad(f"{name}:{number}: not a line of a defect: {line}")
            setattr(defects[-1], key, value.strip())
    return defects


def is_command(text):
    try:
        return shlex.split(text) is not None
    except ValueError:
        return False


def check_defects(defects):
    """All mistakes of the list at once."""
    wrong, names = [], set()
    for d in defects:
        if d.name in names:
            wrong.append(f"defect {d.name} ({d.where}): there is another of that name")
        names.add(d.name)
        if not d.kind or not d.before:
            wrong.append(f"defect {d.name} ({d.where}): \"kind:\" and what to replace must be given")
        elif not is_command(d.first):
            wrong.append(f"defect {d.name} ({d.where}): a quote is missing: {d.first}")
        elif not os.path.isfile(os.path.join(TOP, d.file)):
            wrong.append(f"defect {d.name} ({d.where}): there is no file {d.file}")
        else:
            try:
                d.put_in(open(os.path.join(TOP, d.file), encoding="utf-8").read())
            except Bad as bad:
                wrong.append(str(bad))
    if wrong:
        raise Bad("\n".join(wrong))


# What to run for a defect: the programs to build, the command as words, how long it may take.
Run = collections.namedtuple("Run", "programs command seconds")


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_program(command, seconds, cwd, known=None):
    """The set of its failed checks; with words for a crash or a hang among them. Given the checks that are
    known to fail, it is ended at the first other one."""
    failed, expired = set(), threading.Event()

    def expire():
        expired.set()
        kill_group(child)

    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, start_new_session=True) as child:
        timer = threading.Timer(seconds, expire)
        timer.start()
        for line in child.stdout:
            found = re.match(r"not ok \d+ *-? *(.*)$", line.decode(errors="replace"))
            if not found:
                continue
            failed.add(found[1])
            if known is not None and found[1] not in known:
                break
        else:
            child.wait()
        timer.cancel()
        kill_group(child)
    if expired.is_set():
        failed.add(f"takes more than {seconds:.0f} s")
    elif child.returncode and not failed:
        failed.add(f"ends with {child.returncode}")
    return failed


class Tree:
    """A copy of the sources with a build of its own."""

    def __init__(self, name):
        self.top = os.path.join(TOP, "build/mutate", str(name))
        self.build = os.path.join(self.top, BUILD)
        # The compiler's cache is the same for all copies.
        self.env = dict(os.environ, CCACHE_BASEDIR=self.top, CCACHE_NOHASHDIR="1")

    def path(self, name):
        return os.path.join(self.top, name)

    def copy(self):
        """Only what differs, so that the build stays."""
        out = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=TOP, check=True,
                             stdout=subprocess.PIPE).stdout.decode()
        names = {name for name in out.split("\0") if name and os.path.isfile(os.path.join(TOP, name))}
        for name in names:
            source, copy = os.path.join(TOP, name), self.path(name)
            if os.path.isfile(copy) and open(source, "rb").read() == open(copy, "rb").read():
                continue
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)
        for folder, folders, files in os.walk(self.top):
            folders[:] = [f for f in folders if os.path.join(folder, f) != self.path("build")]
            for file in files:
                if os.path.relpath(os.path.join(folder, file), self.top) not in names:
                    os.unlink(os.path.join(folder, file))

    def run_build(self, *command):
        done = subprocess.run(command, cwd=self.top, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=BUILD_SECONDS_MAX, check=False)
        if done.returncode:
            raise Bad(done.stdout.decode(errors="replace")[-3000:])

    def configure(self, *more):
        self.copy()
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.run_build("cmake", "--preset", "asan", "-DUBLKD_WERROR=OFF", *launcher, *more)


class CleanTree(Tree):
    """The copy without a defect, built as a whole: which program has which file, and what passes."""

    def __init__(self):
        super().__init__("without")
        self.linked, self.programs, self.objects = {}, {}, {}
        self.lock, self.seen = threading.Lock(), {}

    def prepare(self):
        # As cmake links, with a map for each program: which objects it has. As ld writes it.
        link = ("<CMAKE_C_COMPILER> <FLAGS> <CMAKE_C_LINK_FLAGS> <LINK_FLAGS> <OBJECTS> -o <TARGET> "
                "<LINK_LIBRARIES> -Wl,-Map=<TARGET>.map")
        self.configure(f"-DCMAKE_C_LINK_EXECUTABLE={link}", "-DUBLKD_FAST_LINK=OFF")
        self.run_build("cmake", "--build", BUILD)
        self.read_maps()

    def read_maps(self):
        """linked: object, as in a map -> programs; programs: name -> path; objects: source -> objects."""
        for name in glob.glob(self.build + "/**/*.map", recursive=True):
            program = os.path.relpath(name[:-4], self.build)
            self.programs[os.path.basename(program)] = program
            text = open(name, errors="replace").read()
            for obj in re.findall(r"^(?:LOAD )?(\S+\.a\(\S+\.o\)|\S+\.o)(?:\s|$)", text, re.M):
                self.linked.setdefault(obj, set()).add(os.path.basename(program))
        for entry in json.load(open(self.build + "/compile_commands.json")):
            source = os.path.relpath(entry["file"], self.top)
            self.objects.setdefault(source, []).append(re.search(r" -o (\S+)", entry["command"])[1])

    def objects_of(self, name):
        if not name.endswith(".h"):
            return self.objects.get(name, [])
        out = subprocess.run(["ninja", "-C", self.build, "-t", "deps"], stdout=subprocess.PIPE,
                             check=True).stdout.decode()
        found, obj = [], None
        for line in out.splitlines():
            if line and not line[0].isspace():
                obj = line.split(":")[0]
            elif line.strip().endswith(name) and os.path.realpath(
                    os.path.join(self.build, line.strip())) == self.path(name):
                found.append(obj)
        return found

    def programs_with(self, name):
        found = set()
        for obj in self.objects_of(name):
            found |= self.linked.get(obj, set())
            target = re.match(r"(.*?)/?CMakeFiles/(.*)\.dir/(.*)$", obj)
            if target:
                folder, library, member = target.groups()
                archive = os.path.join(folder, f"lib{library}.a")
                found |= self.linked.get(f"{archive}({os.path.basename(member)})", set())
        return found

    def runs(self, defect):
        """What is to be run for a defect, nearest first: (programs to build, command, seconds)."""
        have = self.programs_with(defect.file)
        stem = os.path.splitext(os.path.basename(defect.file))[0]
        units = sorted(p for p in have if p.startswith("test_"))
        folder = os.path.basename(os.path.dirname(defect.file))
        names = [stem, f"{folder}_{stem}", stem.split("_")[0], folder]
        near = list(dict.fromkeys(p for name in names for p in units if p[5:] == name or p[5:].startswith(name + "_")))
        words = [(defect.first, FIRST_SECONDS)] if defect.first else []
        words += [(p, UNIT_SECONDS) for p in near]
        words += [(p, UNIT_SECONDS) for p in STEPS if p in have]
        words += [SIM] if "sim" in have else []
        words += [(p, UNIT_SECONDS) for p in units if p not in near]
        words += [(script.command, script.seconds) for script in SCRIPTS
                  if re.match(script.files, defect.file) and (not script.programs or have & set(script.programs))]
        if not defect.survives:
            words += self.long_ones(defect.file, have)
        return [self.program_run(command, seconds) for command, seconds in dict(words).items()]

    def long_ones(self, name, have):
        """What takes minutes; not for a defect of which it is known that nothing catches it."""
        words = [CONFORMANCE] if "conformance" in have else []
        if "sim" in have and re.search(r"/n(bd|vme)", name):
            words.append(SIM_CUTS)
        if "nbd_faults" in have and re.match(r"backends/nbd/|net/", name):
            words.append(NBD_FAULTS)
        if "nvme_faults" in have and re.match(r"backends/nvme/|net/", name):
            words.append(NVME_FAULTS)
        return words

    def program_run(self, command, seconds):
        """A program of the build, or a script."""
        name, *args = shlex.split(command)
        if "/" in name:
            script = [s for s in SCRIPTS if shlex.split(s.command)[0] == name]
            return Run(script[0].programs if script else [], [name, *args], seconds)
        if name not in self.programs:
            raise Bad(f"there is no program {name}")
        return Run([name], [os.path.join(BUILD, self.programs[name]), *args], seconds)

    def look(self, run):
        """How it ends without a defect: what fails even so, how long it takes."""
        with self.lock:
            lock = self.seen.setdefault(tuple(run.command), [threading.Lock(), None])
        with lock[0]:
            if lock[1] is None:
                began = time.monotonic()
                failed = run_program(run.command, run.seconds, self.top)
                lock[1] = failed, time.monotonic() - began
            return lock[1]


class BrokenTree(Tree):
    """A copy that gets the defects."""

    def __init__(self, idx, clean):
        super().__init__(idx)
        self.clean = clean

    def make(self, programs):
        if programs:
            self.run_build("ninja", "-C", BUILD, *(self.clean.programs.get(p, p) for p in programs))

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def fails(self, run):
        """What fails with the defect and not without."""
        known, seconds = self.clean.look(run)
        seconds = min(run.seconds, max(HANG_SECONDS_MIN, HANG_TIMES * seconds))
        return run_program(run.command, seconds, self.top, known) - known

    def batches(self, runs, has_first):
        """What is built at once: `first:` and the long ones alone, of the others some."""
        while runs:
            size = 1
            while not has_first and size < min(4, len(runs)) and max(r.seconds for r in runs[:size + 1]) <= UNIT_SECONDS:
                size += 1
            yield runs[:size]
            runs, has_first = runs[size:], False

    def try_one(self, defect):
        """Who caught it, and what it said; None: nobody."""
        source = open(self.path(defect.file), encoding="utf-8").read()
        runs = self.clean.runs(defect)
        if not runs:
            raise Bad(f"no test has to do with {defect.file}")
        self.write(defect.file, defect.put_in(source))
        try:
            for batch in self.batches(runs, bool(defect.first)):
                self.make(sorted({p for run in batch for p in run.programs}))
                for run in batch:
                    failed = self.fails(run)
                    if failed:
                        return shlex.join(run.command).replace(BUILD + "/test/", "").replace(BUILD + "/bin/", ""), \
                            sorted(failed)[0]
        finally:
            self.write(defect.file, source)
        return None


class Report:
    def __init__(self):
        self.lock = threading.Lock()
        self.nr = self.bad_nr = self.caught_nr = self.tried_nr = 0
        self.survivors = []

    def line(self, good, text):
        self.nr += 1
        self.bad_nr += not good
        print(f"{'ok' if good else 'not ok'} {self.nr} - {text}", flush=True)

    def defect(self, defect, found, seconds):
        head = f"{defect.name}: {defect.file}, {defect.kind}"
        with self.lock:
            self.tried_nr += 1
            if found:
                self.caught_nr += 1
                self.line(True, f"{head}: caught by {found[0]} in {seconds:.0f} s")
                print(f"#   {found[1][:150]}")
                if defect.survives:
                    print(f"#   its entry ({defect.where}) says that it survives: {defect.survives}")
                return
            self.survivors.append(defect)
            if defect.survives:
                self.line(True, f"{head}: survives, {seconds:.0f} s # SKIP {defect.survives}")
            else:
                self.line(False, f"{head}: survives, {seconds:.0f} s")
                print(f"#   again: test/mutate/mutate.py --only {defect.name}", flush=True)

    def error(self, defect, words):
        with self.lock:
            self.line(False, f"{defect.name}: {defect.file}, {defect.kind}: cannot be tried")
            print("".join(f"#   {line}\n" for line in words.splitlines()[-40:]), end="", flush=True)

    def end(self, is_limited, seconds):
        """Is the list as it should be?"""
        for defect in sorted(self.survivors, key=lambda d: d.name):
            print(f"# {defect.name} survives: {defect.survives or 'NO REASON IS GIVEN'}")
        percent = 100 * self.caught_nr // max(1, self.tried_nr)
        words = f"{self.caught_nr} of {self.tried_nr} defects caught, {percent}%"
        print(f"# {seconds / 60:.1f} minutes")
        if is_limited:
            self.line(percent >= CAUGHT_MIN_PERCENT, f"{words}, {CAUGHT_MIN_PERCENT}% at least")
        else:
            print(f"# {words}")
        print(f"1..{self.nr}")
        return self.bad_nr == 0


def work(tree, todo, report):
    while True:
        try:
            defect = todo.get_nowait()
        except queue.Empty:
            return
        began = time.monotonic()
        try:
            found = tree.try_one(defect)
            report.defect(defect, found, time.monotonic() - began)
        except (Bad, OSError, subprocess.SubprocessError) as error:
            report.error(defect, str(error))


def part(text):
    """K/N as numbers."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text} is not like 1/2")
    return int(found[1]), int(found[2])


def options():
    parser = argparse.ArgumentParser(description="Puts in defects and looks which test sees them.")
    parser.add_argument("--only", default="", metavar="PATTERN",
                        help="only defects whose name, file or kind matches")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N",
                        help="only the Kth of every N defects: another worktree may try the others")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree at work (2)")
    parser.add_argument("--list", action="store_true", help="the defects, and whether they can be put in")
    return parser.parse_args()


def run_all(defects, opt):
    began, report, todo = time.monotonic(), Report(), queue.Queue()
    for defect in defects:
        todo.put(defect)
    clean = CleanTree()
    clean.prepare()
    trees = [BrokenTree(i, clean) for i in range(max(1, min(opt.jobs, len(defects))))]
    for tree in trees:
        tree.configure()
    print(f"# built in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    threads = [threading.Thread(target=work, args=(tree, todo, report)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0 if report.end(not opt.only, time.monotonic() - began) else 1


def main():
    opt = options()
    try:
        defects = [d for path in sorted(glob.glob(HERE + "/*.defects")) for d in read_defects(path)]
        check_defects(defects)
        defects = [d for d in defects if re.search(opt.only, f"{d.name} {d.file} {d.kind}")]
        defects = defects[opt.part[0] - 1::opt.part[1]]
        if not defects:
            raise Bad(f"no defect matches {opt.only}")
        if opt.list:
            for d in defects:
                print(f"{d.name:32} {d.file:28} {d.kind}{' (survives: ' + d.survives + ')' if d.survives else ''}")
            return 0
        return run_all(defects, opt)
    except Bad as bad:
        print("".join(f"# {line}\n" for line in str(bad).splitlines()), end="")
        print(f"not ok 1 - the list of defects\n1..1")
        return 1


if __name__ == "__main__":
    sys.exit(main())
