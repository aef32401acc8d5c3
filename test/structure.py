#!/usr/bin/env python3
"""Which folder may include which, and what a folder may hold. Prints TAP.

usage: structure.py           checks
       structure.py --table   what the product's and the tests' code consists of, for people

The compiler refuses an include of a header that a layer does not export to the includer
(ublkd_layer in CMakeLists.txt); this refuses a LAYERS that the design does not allow.
"""
import glob
import os
import re
import subprocess
import sys
from collections import defaultdict

SOURCES_MAX = 40

GROUND = {"base", "reactor", "config"}
STORAGE = GROUND | {"storage"}
DRIVER = STORAGE | {"host", "ublk"}
DAEMON_GROUND = DRIVER | {"daemon/settings", "daemon/runtime"}
TRACER = {"base", "ublktrace", "ublktrace/events", "ublktrace/elf", "ublktrace/kernel"}

# FOLDER: what its sources may include beside their own folder.
MAY = {
    "base": set(),
    "examples": set(),
    "reactor": {"base"},
    "config": {"base"},
    "host": {"base"},
    "net": GROUND,
    "net/http": GROUND | {"net"},
    "storage": GROUND | {"net"},
    "backends": STORAGE,
    "backends/file": STORAGE,
    "backends/http": STORAGE | {"net", "net/http"},
    "backends/mem": STORAGE,
    "backends/nbd": STORAGE | {"net"},
    "backends/nvme": STORAGE | {"net", "backends/nvme/keys", "backends/nvme/protocol"},
    "backends/nvme/protocol": {"base", "config", "net", "backends/nvme/keys"},
    "backends/nvme/keys": {"base"},
    "backends/qcow2": STORAGE | {"net"} | {"backends/qcow2/format", "backends/qcow2/codec"},
    "backends/qcow2/format": {"base"},
    "backends/qcow2/codec": {"base"},
    # its servers, keys and refusals are those of the objects that s3 reads
    "backends/s3_disk": STORAGE | {"net", "net/http", "backends/http"},
    "filters": STORAGE,
    "filters/stripe": STORAGE,
    "filters/throttle": STORAGE,
    "ublk": STORAGE | {"host"},
    "ublk/queue": STORAGE | {"ublk"},
    "ublk/device": DRIVER | {"ublk/queue"},
    "daemon/settings": DRIVER | {"backends/mem"},
    "daemon/runtime": DRIVER | {"daemon/settings"},
    "daemon/fdstore": {"base", "host", "daemon/runtime"},
    "daemon/wire": {"base"},
    "daemon/socket": GROUND | {"daemon/runtime", "daemon/wire"},
    "daemon/devices": DAEMON_GROUND | {"ublk/device", "ublk/queue", "daemon/fdstore"},
    "daemon/handover": DAEMON_GROUND
    | {"ublk/device", "ublk/queue", "daemon/fdstore", "daemon/devices", "daemon/socket", "daemon/wire"},
    "daemon/api": DAEMON_GROUND
    | {"ublk/device", "ublk/queue", "daemon/fdstore", "daemon/devices", "daemon/socket",
       "daemon/handover", "daemon/wire", "filters/throttle", "net"},
    "daemon/verdict": {"base"},
    "daemon/metrics": DAEMON_GROUND | {"net", "daemon/verdict", "daemon/wire", "ublk/device", "ublk/queue", "daemon/devices", "daemon/api"},
    "daemon": DAEMON_GROUND
    | {"ublk/device", "ublk/queue", "daemon/fdstore", "daemon/socket", "daemon/devices",
       "daemon/handover", "daemon/api", "daemon/metrics"},
    # reads what ublkd writes; asks an NBD server or an NVMe target, and makes qcow2 images by itself
    "ublkctl": DRIVER | {"net", "ublkctl/image", "ublkctl/print", "backends/qcow2/format", "backends/nbd", "backends/nvme", "backends/nvme/protocol", "backends/s3_disk", "filters/cache",
                         "daemon/settings", "daemon/runtime", "daemon/socket", "daemon/verdict", "daemon/wire", "tracefile"},
    "ublkctl/image": {"base", "backends/qcow2/format"},
    "ublkctl/print": {"base"},
    "ublkctl/udev": DRIVER | {"ublkctl", "ublkctl/print", "daemon/runtime", "daemon/settings"},
    "ublkctl/top": {"base", "daemon/runtime", "ublkctl", "ublkctl/print"},
    "tracefile": {"base"},
    "ublktrace": {"base"},
    "ublktrace/events": {"base"},
    "ublktrace/elf": {"base"},
    "ublktrace/kernel": TRACER - {"ublktrace/kernel"},
    "ublktrace/timeline": {"base", "tracefile", "ublktrace/events"},
    "ublktrace/output": {"base", "tracefile", "ublktrace/events", "ublktrace/timeline"},
    "ublktrace/latency": TRACER,
    "ublktrace/stacks": TRACER,
    "ublktrace/control": TRACER,
    "ublktrace/record": TRACER | {"ublktrace/output"},
    "ublktrace/selftest": TRACER,
    # what the programs in the kernel share with those that read them
    "ublktrace/bpf": {"ublktrace/events", "ublktrace/latency", "ublktrace/stacks", "ublktrace/control",
                      "ublktrace/selftest"},
}
# A node of a new kind is its folder.
for folder in {os.path.dirname(path) for path in glob.glob("[bf]*/*/CMakeLists.txt")}:
    if folder.startswith(("backends/", "filters/")):
        MAY.setdefault(folder, STORAGE | ({"net"} if folder.startswith("backends/") else set()))
# A main program may include every part of its own.
PROGRAMS = {"daemon/main.c", "daemon/manual.c", "ublkctl/main.c", "ublktrace/main.c"}
# Names that stand more than once: each program and library has its own.
SHARED_NAMES = {"main.c", "CMakeLists.txt", "README.md"}


def listed(*patterns):
    out = subprocess.check_output(["git", "ls-files", "-c", "-o", "--exclude-standard", *patterns], text=True)
    return sorted({line for line in out.splitlines() if os.path.isfile(line)})


def sources():
    return [f for f in listed("*.c", "*.h") if not f.startswith("bench/")]


def is_test(path):
    return path.startswith("test/")


def wrong_arrows(files):
    """Includes that point where their folder may not look."""
    wrong = []
    for file in files:
        folder = os.path.dirname(file)
        if is_test(file) or file in PROGRAMS:
            continue
        if folder not in MAY:
            wrong.append(f"{file}: test/structure.py does not know the folder {folder}")
            continue
        for target in re.findall(r'^#include "([^"]+/[^"/]+\.h)"', read(file), re.M):
            there = os.path.dirname(target)
            if there != folder and there not in MAY[folder]:
                wrong.append(f"{file}: {folder} may not include {target}")
    return wrong


def cycles():
    """Folders that may reach themselves."""
    found = []
    for start in MAY:
        seen, todo = set(), list(MAY[start])
        while todo:
            folder = todo.pop()
            if folder not in seen:
                seen.add(folder)
                todo += MAY.get(folder, ())
        if start in seen:
            found.append(start)
    return found


def full_folders(files):
    count = defaultdict(int)
    for file in files:
        count[os.path.dirname(file)] += 1
    return [f"{folder}: {nr} sources, {SOURCES_MAX} at most" for folder, nr in sorted(count.items()) if nr > SOURCES_MAX]


def shared_names(files):
    where = defaultdict(list)
    for file in files:
        name = os.path.basename(file)
        if name not in SHARED_NAMES:
            where[name].append(file)
    return [" and ".join(paths) for paths in where.values() if len(paths) > 1]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


FUNCTION = re.compile(r"^(?!typedef|struct \w+ \{|enum|union|#|/|\*|extern)[A-Za-z_][^;={}()]*?\**(\w+)\([^;{}]*\)\n\{\n(.*?)^\}\n",
                      re.M | re.S)


def functions(files):
    """(name, lines, file) of each function."""
    found = []
    for file in files:
        if file.endswith(".c"):
            # attributes and sections look like functions to the pattern
            text = re.sub(r"__attribute__\(\(.*?\)\)\s*(?=\w)|^SEC\(.*?\)\s*", "", read(file), flags=re.M)
            for match in FUNCTION.finditer(text):
                found.append((match[1], match[0].count("\n"), file))
    return found


def shared_functions(files):
    """Functions of file scope or more that a backtrace cannot tell apart."""
    where = defaultdict(set)
    for name, _, file in functions(files):
        where[name].add(file)
    # each program has a main; BPF programs are named by their section
    return [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(where.items())
            if len(paths) > 1 and name not in ("main", "BPF_PROG")]


# Files of the kernel and of libraries that prose names without a folder.
FOREIGN_FILES = {"vmlinux.h", "getopt.h", "bpf_tracing.h"}


def stale_names(texts):
    """Names of sources in prose that no file has: texts is (file, prose)."""
    everything = listed()
    names = {os.path.basename(f) for f in everything} | FOREIGN_FILES
    tops = "|".join(sorted({f.split("/")[0] for f in everything if "/" in f}))
    path = re.compile(rf"(?<![\w/.-])((?:{tops})/[\w/.-]+\.(?:c|h|sh|py|js|yaml|csv))\b")
    bare = re.compile(r"(?<![\w/.*-])([a-z_0-9]+\.[ch])\b")
    stale = set()
    for file, prose in texts:
        stale |= {f"{file}: there is no {name}" for name in path.findall(prose) if name not in everything}
        stale |= {f"{file}: there is no {name}" for name in bare.findall(prose) if name not in names}
    return sorted(stale)


def comments(file):
    return " ".join(re.findall(r"/\*.*?\*/", read(file), re.S))


def unescaped_prints(files):
    """Where ublkctl prints past ublkctl/print/say.c, which makes printable what others may have written."""
    return [f"{file}: {line.strip()}" for file in files if file.startswith("ublkctl/") and file.endswith(".c") and file != "ublkctl/print/say.c"
            for line in read(file).splitlines() if re.search(r"(?<!\w)(printf\(|v?fprintf\(std(out|err)\b)", line)]


# Texts that are ASCII by what made them: digits of a hash or of a token, names that daemon/settings has judged.
ASCII_CUTS = {"backends/http/web_open.c": "%.40s", "backends/nvme/nvme_open.c": "%.50s", "backends/nbd/nbd_open.c": "%.30s",
              "backends/s3_disk/s3_disk_manifest.c": "%.32s", "ublkctl/snippet.c": "%.40s"}


def cut_letters(files):
    """Where a text may be cut inside a letter: "%.*s" with utf8_fit (base/printable.h) cuts between two. Numbers of processes and
    names of tasks, with up to 24 bytes, are whole."""
    return [f"{file}: {line.strip()}" for file in files if file.endswith((".c", ".h"))
            for line in read(file).splitlines() for cut in re.findall(r"%-?\d*\.\d+s", line)
            if int(cut.split(".")[1][:-1]) > 24 and ASCII_CUTS.get(file) != cut]


def escaped_newlines(files):
    """Where a format of say_to has a newline before its end, which say.c makes an escape."""
    return [f"{file}: {call}" for file in files for call in re.findall(r'\bsay_to\(\w+,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', read(file))
            if r"\n" in re.sub(r'"\s*"', "", call).strip()[:-3]]


CHECK_LIST = "test/check_list.sh"


def missing_checks():
    """What the list of checks names and nothing provides: a test would be left out for a wrong name."""
    text = re.sub(r"^\s*#.*", "", read(CHECK_LIST), flags=re.M)
    everything = set(listed())
    units = {os.path.basename(f)[:-2] for f in everything if re.fullmatch(r"test/unit/\w+/test_\w+\.c", f)}
    targets = set(units)
    for cmake in [f for f in everything if f.endswith("CMakeLists.txt")]:
        targets |= set(re.findall(r"^\s*(?:add_executable|ublkd_\w+)\((\w+)", read(cmake), re.M))
    missing = {f"test {name}" for name in re.findall(r"\btest_\w+(?!\w|/)", text)} - {f"test {name}" for name in units}
    missing |= {f"program {name}" for name in re.findall(r"build/\w+/(?:test|bin)/(\w+)", text) if name not in targets}
    missing |= {f"program {name}" for name in re.findall(r"\bfuzz_\w+", text) if name not in targets}
    folders = {os.path.dirname(f) for f in everything}
    turns = re.findall(r"\bturn \S+((?: [\w./]+)+);", text) + re.findall(r"^fuzz \w+ (\S+)", text, re.M)
    missing |= {f"folder {path}" for path in " ".join(turns).split() if path not in everything and not any(f"{f}/".startswith(f"{path}/") for f in folders)}
    missing |= {f"script {path}" for path in re.findall(r"\b((?:test|bench)/[\w/]+\.(?:sh|py))\b", text) if path not in everything}
    return sorted(missing)


ENTRY = r"(uml|7\.2|6\.12)(?: (?:asan|tsan))?(?: -(?:[nis]|[cm] \w+))*"


def wrong_heads():
    """Heads of guest suites that test/check_turns.sh would misread: such a suite would run nowhere."""
    everything = listed()
    wrong = []
    for file in everything:
        if not re.fullmatch(r"test/vm/guest_\w+\.sh", file) or not read(file).startswith("#!"):
            continue
        head = re.match(r"(?:#.*\n)+", read(file)).group()
        said = re.findall(r"^# (Runs on|By turns|With --all|With --soak): (.*)$", head, re.M)
        if not said and "\n# Run by: " not in head:
            wrong.append(f"{file}: its head does not say where it runs")
        for entry in [entry for _, entries in said for entry in entries.split(", ")]:
            if not re.fullmatch(ENTRY, entry):
                wrong.append(f"{file}: '{entry}' is no KERNEL [BUILD] [FLAG...]")
        for path in " ".join(re.findall(r"^# When these change: (.*)$", head, re.M)).split():
            if not any(f == path or f.startswith(path + "/") for f in everything):
                wrong.append(f"{file}: there is no {path}")
    return wrong


def table():
    files = sources()
    for title, part in (("product", [f for f in files if not is_test(f)]), ("tests", [f for f in files if is_test(f)])):
        lines = {f: read(f).count("\n") for f in part}
        sizes = sorted(nr for _, nr, _ in functions(part))
        folders = defaultdict(int)
        for file in part:
            folders[os.path.dirname(file)] += 1
        largest = sorted(folders.items(), key=lambda item: -item[1])[:4]
        print(f"{title}: {sum(lines.values())} lines in {len(part)} files, {sum(n < 60 for n in lines.values())} of them"
              f" under 60 lines")
        print(f"  {len(folders)} folders, the largest: " + ", ".join(f"{name} {nr}" for name, nr in largest))
        print(f"  {len(sizes)} functions: median {sizes[len(sizes) // 2]} lines, 95% up to {sizes[len(sizes) * 95 // 100]},"
              f" {sum(n < 7 for n in sizes)} under 7; names in more than one file: {len(shared_functions(part))}")


def main():
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if sys.argv[1:] == ["--table"]:
        table()
        return 0
    files = sources()
    product = [f for f in files if not is_test(f)]
    checks = [
        ("no folder includes what it may not see", wrong_arrows(files)),
        ("no folder can reach itself", cycles()),
        (f"no folder holds more than {SOURCES_MAX} sources", full_folders(files)),
        ("no two sources have one name", shared_names(product)),
        ("no two sources have functions of one name", shared_functions(product)),
        ("ublkctl prints by ublkctl/print/say.c alone", unescaped_prints(product)),
        ("texts are cut between letters", cut_letters(product)),
        ("a format of say_to has no newline before its end", escaped_newlines(product)),
        (f"{CHECK_LIST} names tests that exist", missing_checks()),
        ("guest suites say where they run", wrong_heads()),
        ("docs name no file that is not there", stale_names((f, read(f)) for f in listed("*.md", "docs/man/*"))),
        ("comments name no file that is not there", stale_names((f, comments(f)) for f in files)),
    ]
    print(f"1..{len(checks)}")
    for number, (name, wrong) in enumerate(checks, 1):
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in wrong:
            print(f"# {line}")
    return 1 if any(wrong for _, wrong in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
