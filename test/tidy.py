#!/usr/bin/env python3
"""clang-tidy over sources, two at a time, but for those that it has found well before.

  tidy.py BUILD_FOLDER [OPTION OF CLANG-TIDY...] <NAMES OF SOURCES, A LINE EACH

Prints what it finds and fails then. A source that is well leaves its sum in a folder of the user's cache: of all that
clang-tidy sees of it (the preprocessed text with comments and macros), of the rules, the options and the program. The
place of the tree is not part of that, so another clone finds it too."""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ublkd-tidy")
KEEP_DAYS = 30


def run(*command, cwd=TOP):
    return subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)


class Tidy:
    def __init__(self, build, options):
        self.command = ["clang-tidy", "--quiet", "-p", build, *options]
        with open(os.path.join(TOP, ".clang-tidy"), "rb") as rules:
            self.rules = b"\0".join([run("clang-tidy", "--version").stdout, rules.read(), " ".join(options).encode()])
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as commands:
            self.compiled = {}
            for entry in json.load(commands):
                # as clang-tidy does, each way that a source is compiled
                self.compiled.setdefault(os.path.relpath(entry["file"], TOP), []).append(entry)

    def sum_of(self, source):
        """None: it cannot be preprocessed."""
        found = hashlib.sha256(self.rules)
        for entry in self.compiled.get(source, []):
            words = shlex.split(entry["command"])
            if "ccache" in words[0] or words[0] == "env":
                words = words[next(i for i, word in enumerate(words) if re.search(r"(clang|cc)(-\d+)?$", word)
                                   and not word.endswith("ccache")):]
            end = words.index("-o")
            done = run(*words[:end], *words[end + 2:], "-E", "-dD", "-C", "-P", cwd=entry["directory"])
            if done.returncode:
                return None
            # -W options and the like are in the command, paths of the tree in both
            for part in (" ".join(words).encode(), done.stdout):
                found.update(part.replace(os.path.join(TOP, "").encode(), b"") + b"\0")
        return found.hexdigest() if source in self.compiled else None

    def check(self, source):
        """What is wrong with a source; "" when it is well."""
        name = self.sum_of(source)
        mark = os.path.join(CACHE, name) if name else None
        if mark and os.path.exists(mark):
            os.utime(mark)
            return ""
        done = run(*self.command, source)
        said = "\n".join(sorted({line for line in done.stdout.decode(errors="replace").splitlines()
                                 if re.search("error:|warning:", line)}))
        if done.returncode and not said:
            said = f"{source}: clang-tidy fails: {done.stderr.decode(errors='replace')[-500:]}"
        if mark and not said:
            os.makedirs(CACHE, exist_ok=True)
            with open(mark, "w", encoding="utf-8"):
                pass
        return said


def forget_old():
    for entry in os.scandir(CACHE) if os.path.isdir(CACHE) else []:
        if entry.stat().st_mtime < time.time() - KEEP_DAYS * 86400:
            os.unlink(entry.path)


def main():
    tidy = Tidy(sys.argv[1], sys.argv[2:])
    sources = sys.stdin.read().split()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = [text for text in pool.map(tidy.check, sources) if text]
    forget_old()
    print("\n".join(said))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
