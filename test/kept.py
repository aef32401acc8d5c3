#!/usr/bin/env python3
"""What one process leaves to another one, or to a later one of another version, has the layout that was noted for its
version. Prints TAP.

usage: kept.py                checks test/kept.layouts against the sources
       kept.py --note [NAME]  notes the layout of a version that was raised, or of what has grown

test/kept.layouts has an entry for each such memory, file or message:

    == NAME
    file: FILE...        sources from which all of it can be seen
    version: WORD        a macro or a constant; or `grows`: one structure, to which members are added behind;
                         or `forever`: nothing of it may change
    has: PART, PART...   struct NAME, enum NAME, macro NAME, function NAME, or texts NAME: the texts in a function, or in
                         an array outside of functions
    VALUE: HASH...       of each version that ever was, one hash for each part; of what grows VALUE is the number of members

A structure has those in it, and enums, without being told so. What counts of it is the text after the preprocessor: so each
name, type, order and number, but neither comments nor spaces. Of a function it is the text before, as system headers differ.
"""
import hashlib
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
NOTES = "test/kept.layouts"
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|[^\w\s]')
FIXED = ("grows", "forever")


class Wrong(Exception):
    pass


# ---- C ----

def split(text):
    """Its tokens, and the definitions of its macros."""
    macros, lines = {}, []
    for line in text.replace("\\\n", " ").split("\n"):
        define = re.match(r"\s*#\s*define\s+(\w+)(.*)", line)
        if define:
            macros[define[1]] = define[2]
        elif not re.match(r"\s*#", line):
            lines.append(line)
    return TOKEN.findall("\n".join(lines)), macros


def block(tokens, start):
    """From the token at start to the } that belongs to the first { behind it."""
    depth = 0
    for end in range(tokens.index("{", start), len(tokens)):
        depth += {"{": 1, "}": -1}.get(tokens[end], 0)
        if depth == 0:
            return tokens[start:end + 1]
    raise Wrong("a } is missing")


def find(tokens, *words):
    """Where these tokens follow each other."""
    return [i for i in range(len(tokens) - len(words)) if tokens[i:i + len(words)] == list(words)]


class Source:
    """Files after the preprocessor, and as they are written."""

    def __init__(self, text, raw):
        self.tokens, self.macros = split(text)
        self.raw, _ = split(re.sub(r"/\*.*?\*/", " ", raw, flags=re.S))

    def record(self, kind, name):
        """struct or enum: its definition."""
        for start in find(self.tokens, kind, name):
            if self.tokens[start + 2] == "{":
                return block(self.tokens, start)
        raise Wrong(f"there is no {kind} {name}")

    def function(self, name):
        for start in find(self.raw, name, "("):
            end = self.raw.index(")", start)
            if self.raw[end + 1] == "{":
                return block(self.raw, start)
        raise Wrong(f"there is no function {name}")

    def array(self, name):
        for start in find(self.raw, name, "["):
            end = self.raw.index("]", start)
            if self.raw[end + 1:end + 3] == ["=", "{"]:
                return block(self.raw, start)
        raise Wrong(f"there is no function and no array {name}")

    def texts(self, name):
        """In their order: that of an array tells which text means what."""
        try:
            tokens = self.function(name)
        except Wrong:
            tokens = self.array(name)
        return [token for token in tokens if token.startswith('"')]

    def closure(self, kind, name, seen):
        """The definition and those of what lies in it; a pointer is of no use to another process."""
        if (kind, name) in seen:
            return []
        seen.add((kind, name))
        text = self.record(kind, name)
        if kind == "struct" and "*" in text:
            raise Wrong(f"struct {name} has a pointer, or a product: neither can be compared")
        for i in range(3, len(text) - 1):
            if text[i] in ("struct", "enum") and re.match(r"\w", text[i + 1]) and text[i + 2] != "{":
                text = text + self.closure(text[i], text[i + 1], seen)
        return text

    def part(self, part):
        kind, _, name = part.partition(" ")
        if kind in ("struct", "enum"):
            return self.closure(kind, name, set())
        if kind == "function":
            return self.function(name)
        if kind == "texts":
            return self.texts(name)
        if kind == "macro" and name in self.macros:
            return TOKEN.findall(self.macros[name])
        raise Wrong(f"there is no {part}")

    def version(self, word):
        """The value of a macro, or of a constant of C."""
        if word in self.macros:
            return "".join(TOKEN.findall(self.macros[word]))
        for start in find(self.tokens, word, "[", "]", "="):
            return self.tokens[start + 4]
        raise Wrong(f"there is no {word}")

    def members(self, name):
        """Of a structure: each as a text."""
        text = self.closure("struct", name, set())
        if text.count("{") > 1:
            raise Wrong(f"struct {name} has others in it: it cannot grow")
        return " ".join(text[3:text.index("}")] + [""]).split(" ; ")[:-1]


def hash_of(tokens):
    return hashlib.sha256(" ".join(tokens).encode()).hexdigest()[:12]


def read(files):
    raw = []
    for file in files:
        with open(os.path.join(TOP, file), encoding="utf-8") as f:
            raw.append(f.read())
    lines = "".join(f'#include "{file}"\n' for file in files)
    done = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-dD", "-std=gnu17", "-D_GNU_SOURCE", '-DUBLKD_VERSION="0"',
                           "-I", ".", "-x", "c", "-"], input=lines, capture_output=True, text=True, check=False, cwd=TOP)
    if done.returncode != 0:
        raise Wrong(done.stderr.split("\n")[0])
    return Source(done.stdout, "\n".join(raw))


# ---- entries ----

class Entry:
    def __init__(self, name):
        self.name, self.files, self.version, self.parts, self.noted = name, [], "", [], {}

    def now(self, source):
        """(the version, its hashes)"""
        if self.version == "grows":
            members = source.members(self.parts[0].partition(" ")[2])
            return str(len(members)), [hash_of(members)]
        value = "1" if self.version == "forever" else source.version(self.version)
        return value, [hash_of(source.part(part)) for part in self.parts]

    def judge(self, source):
        """None, or what is wrong."""
        value, hashes = self.now(source)
        place = f"{self.name} ({self.files[0]})"
        if self.version == "grows":
            members = source.members(self.parts[0].partition(" ")[2])
            for nr, (noted,) in self.noted.items():
                if hash_of(members[:int(nr)]) != noted:
                    return (f"{place}: a member of {self.parts[0]} has changed or is gone. Processes of other versions read it and "
                            "there is no version by which they could tell: put it back, and add what is new behind all others")
            return None if value in self.noted else f"{place}: {self.parts[0]} has grown: note that: test/kept.py --note {self.name}"
        if value not in self.noted:
            return f"{place}: {self.version} is new: {value}. Note its layout: test/kept.py --note {self.name}"
        changed = [f"{part} (now {a})" for part, a, b in zip(self.parts, hashes, self.noted[value]) if a != b]
        if not changed and len(hashes) == len(self.noted[value]):
            return None
        what = ", ".join(changed) or "what is listed"
        if self.version == "forever":
            return (f"{place}: {what} has changed, which has no version: a process of another version would take the old layout for "
                    "the new one. Put it back; or give it a version, and say in the code what becomes of what has none")
        return (f"{place}: {what} has changed, and {self.version} is {value} still: a process of another version would take the old "
                f"layout for the new one. Raise {self.version}, say in the code what becomes of what the version before has left "
                f"(converted, or refused), and note the layout: test/kept.py --note {self.name}. Only where names of a function have "
                "changed and no place of a byte, put the new hash in place of the old one")

    def note(self, source):
        value, hashes = self.now(source)
        if value in self.noted:
            wrong = self.judge(source)
            if wrong:
                raise Wrong(wrong)
            return False
        numbers = [int(re.match(r"\d+", old)[0]) for old in self.noted if re.match(r"\d+u?$", old)]
        if numbers and re.match(r"\d+u?$", value) and int(value.rstrip("u")) <= max(numbers):
            raise Wrong(f"{self.name}: {value} is no higher version than {max(numbers)}")
        self.noted[value] = hashes
        return True


def read_entries():
    head, entries = [], []
    with open(os.path.join(TOP, NOTES), encoding="utf-8") as f:
        for line in f.read().split("\n"):
            if line.startswith("== "):
                entries.append(Entry(line[3:]))
            elif not entries:
                head.append(line)
            elif line:
                key, _, text = line.partition(": ")
                if key == "file":
                    entries[-1].files = text.split()
                elif key == "version":
                    entries[-1].version = text
                elif key == "has":
                    entries[-1].parts += text.split(", ")
                else:
                    entries[-1].noted[key] = text.split()
    return head, entries


def write_entries(head, entries):
    lines = ["\n".join(head).rstrip("\n"), ""]
    for e in entries:
        lines += [f"== {e.name}", f"file: {' '.join(e.files)}", f"version: {e.version}"]
        lines += [f"has: {part}" for part in e.parts]
        lines += [f"{value}: {' '.join(hashes)}" for value, hashes in e.noted.items()] + [""]
    with open(os.path.join(TOP, NOTES), "w", encoding="utf-8") as f:
        f.write("\n".join(lines))


# ---- the check of the check ----

EXAMPLE = """
#define NR 4
#define VERSION 2u
#define SIZE(x) ((x) * 8)
static const char magic[] = "abc 1";
enum kind { A, B };
struct inner { uint8_t x, y; };
struct kept { uint32_t a; enum kind kind; struct inner in[4]; };
struct grown { uint32_t a, b; char text[4]; };
static const char *const names[] = { [A] = "one", [B] = "two" };
static unsigned place(struct kept *k) { return sizeof(*k) * 2 + "text"[0]; }
"""
# What is told from the example, and by which part.
CHANGES = [
    ("struct kept", "uint32_t a;", "uint64_t a;"), ("struct kept", "uint32_t a;", "uint32_t b;"),
    ("struct kept", "uint32_t a; enum kind kind;", "enum kind kind; uint32_t a;"), ("struct kept", "in[4]", "in[5]"),
    ("struct kept", "x, y", "y, x"), ("struct kept", "A, B", "B, A"), ("macro NR", "NR 4", "NR 5"),
    ("macro SIZE", "* 8", "* 9"), ("function place", "* 2", "* 3"), ("texts place", '"text"', '"tex"'),
    ("texts names", '"two"', '"three"'), ("texts names", '"one", [B] = "two"', '"two", [B] = "one"'),
]


def judge_example(text, part="struct kept", version="VERSION"):
    entry = Entry("example")
    entry.files, entry.version, entry.parts = ["x.h"], version, [part]
    entry.note(Source(EXAMPLE, EXAMPLE))
    return entry.judge(Source(text, text)) or ""


def self_check():
    for part, old, new in CHANGES:
        assert EXAMPLE.count(old) == 1, old
        changed = EXAMPLE.replace(old, new)
        assert "VERSION is 2u still" in judge_example(changed, part), (part, new)
        assert "has no version" in judge_example(changed, part, "forever"), (part, new)
        assert "is new: 3u" in judge_example(changed.replace("2u", "3u"), part), (part, new)
    assert judge_example(EXAMPLE.replace("; ", " ;\n\t")) == ""
    assert 'is new: "abc2"' in judge_example(EXAMPLE.replace("abc 1", "abc2"), version="magic")
    assert judge_example(EXAMPLE, "struct grown", "grows") == ""
    assert "has grown" in judge_example(EXAMPLE.replace("text[4];", "text[4]; bool c;"), "struct grown", "grows")
    for old, new in (("a, b", "b, a"), ("text[4]", "text[5]"), ("a, b;", "a, b; bool c;"), (" char text[4];", "")):
        assert "has changed or is gone" in judge_example(EXAMPLE.replace(old, new), "struct grown", "grows"), new
    for text in (EXAMPLE.replace("uint8_t x", "uint8_t *x"), EXAMPLE.replace("struct inner {", "struct other {")):
        try:
            Source(text, text).part("struct kept")
            assert False, text
        except Wrong:
            pass


def check(entries):
    results = []
    try:
        self_check()
        results.append(("changes are told", None))
    except AssertionError as error:
        results.append(("changes are told", repr(error)))
    for entry in entries:
        try:
            results.append((entry.name, entry.judge(read(entry.files))))
        except Wrong as error:
            results.append((entry.name, f"{entry.name}: {error}"))
    print(f"1..{len(results)}")
    for i, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {i} - kept: {name}")
        if wrong:
            print(f"# {wrong}")
    return any(wrong for _, wrong in results)


def main():
    head, entries = read_entries()
    if sys.argv[1:2] != ["--note"]:
        return check(entries)
    for entry in entries:
        if len(sys.argv) < 3 or entry.name in sys.argv[2:]:
            try:
                if entry.note(read(entry.files)):
                    print(f"{entry.name}: noted")
            except Wrong as error:
                sys.exit(f"kept.py: {error}")
    write_entries(head, entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())
