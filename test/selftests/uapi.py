#!/usr/bin/env python3
"""docs/ublk.md and ublk/ublk_abi.h against the driver's header. Prints TAP.

usage: uapi.py            with the source that the kernel's selftests come from (bench/kublk.sh)

Each name of the header must be in a table of docs/ublk.md, and each name there in the header, or
marked as of a newer kernel. What is "used" must be in the sources, what is not must not be. What
ublk_abi.h defines must have the header's value.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ABI = os.path.join(TOP, "ublk/ublk_abi.h")
NAME = r"UBLK_(?:F|U_CMD|U_IO|IO_OP|IO_F|IO_RES|PARAM_TYPE|ATTR|S_DEV|BATCH_F|SHMEM_BUF)_[A-Z0-9_]+|UBLK_AUTO_BUF_REG_FALLBACK"
ROW = re.compile(r"^\| `(%s)` \| (used|refused|no|not yet) \| (\d+\.\d+) \| (?:(.*) )?\|$" % NAME)
PRODUCT = ["base", "reactor", "storage", "ublk", "daemon", "ublkctl"]
# What only says how a command or a flag is called.
NAMES_ONLY = {"ublk/ublk_abi.h", "ublk/worker.c", "ublk/servable.c"}

test_nr = bad_nr = 0


def ok(name, wrong):
    global test_nr, bad_nr
    test_nr += 1
    bad_nr += bool(wrong)
    print(f"{'not ok' if wrong else 'ok'} {test_nr} - {name}")
    for line in wrong:
        print(f"# {line}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def defined(path):
    return set(re.findall(r"^#define\s+(%s)\b" % NAME, read(path), re.M))


def table():
    """name -> (verdict, version); a row that is no row is told."""
    rows, wrong = {}, []
    for line in read(os.path.join(TOP, "docs/ublk.md")).splitlines():
        if not re.match(r"\| `UBLK_", line):
            continue
        row = ROW.match(line)
        if not row or not (row[4] or row[2] == "used"):
            wrong.append("not NAME | used, refused, no or not yet | VERSION | WHY: " + line)
        elif row[1] in rows:
            wrong.append(f"{row[1]} has two rows")
        else:
            rows[row[1]] = row[2], tuple(map(int, row[3].split(".")))
    return rows, wrong


def version_of(source):
    return tuple(map(int, re.search(r"linux-source-(\d+)\.(\d+)", read(os.path.join(source, "package"))).groups()))


def product_uses():
    """Names in the product's sources, without those that only name them."""
    found = set()
    for folder in PRODUCT:
        for path in glob.glob(os.path.join(TOP, folder, "**/*.[ch]"), recursive=True):
            if os.path.relpath(path, TOP) not in NAMES_ONLY:
                code = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
                code = re.sub(r"^\s*\{ UBLK_U_CMD_.*", "", code, flags=re.M)
                found |= set(re.findall(r"\b(%s)\b" % NAME, code))
    return found


def values(header, names, folder):
    """What a C compiler makes of them."""
    program = os.path.join(folder, "values")
    lines = "".join(f'printf("{n} %llx\\n", (unsigned long long){n} & 0xffffffff);' for n in sorted(names))
    text = f'#include <errno.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n#include "{header}"\nint main(void) {{ {lines} }}\n'
    subprocess.run(["cc", "-w", "-x", "c", "-", "-o", program], input=text.encode(), check=True)
    out = subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.decode()
    return dict(line.split() for line in out.splitlines())


def main():
    source = subprocess.check_output([os.path.join(TOP, "bench/kublk.sh"), "--source"], text=True).strip()
    header = os.path.join(source, "include/uapi/linux/ublk_cmd.h")
    version, names, ours = version_of(source), defined(header), defined(ABI)
    rows, wrong = table()
    ok("docs/ublk.md: the rows can be read", wrong)
    ok("each name of the header is in docs/ublk.md", sorted(names - rows.keys()))
    ok("docs/ublk.md names nothing else", sorted(n for n in rows.keys() - names if rows[n][1] <= version))
    uses = product_uses()
    ok("what is used is in the sources", sorted(n for n in rows if rows[n][0] in ("used", "refused") and n not in uses))
    ok("what is not used is not", sorted(n for n in rows if rows[n][0] in ("no", "not yet") and n in uses))
    with tempfile.TemporaryDirectory() as folder:
        theirs, own = values(header, names & ours, folder), values(ABI, names & ours, folder)
    ok("ublk_abi.h has the header's values", [f"{n}: {own[n]}, not {theirs[n]}" for n in own if own[n] != theirs[n]])
    print(f"1..{test_nr}")
    sys.exit(bad_nr > 0)


main()
