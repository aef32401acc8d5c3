"""A program in a pseudo terminal, and what it has drawn. The terminal knows few commands (its
terminfo entry lists them all), so that what a test sees is what was drawn, not what was sent."""

import collections
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

PATIENCE = 120
ENTRY = r"""ublkd-test|a terminal for tests,
	am, cols#80, lines#24, colors#8, pairs#64,
	clear=\E[H\E[2J, cup=\E[%i%p1%d;%p2%dH, el=\E[K, ed=\E[J, cr=^M, ind=^J,
	smcup=\E[?1049h, rmcup=\E[?1049l, civis=\E[?25l, cnorm=\E[?25h,
	bold=\E[1m, dim=\E[2m, rev=\E[7m, sgr0=\E[m,
	setaf=\E[3%p1%dm, setab=\E[4%p1%dm, op=\E[39;49m,
	kcuu1=\EOA, kcud1=\EOB, kbs=^H, knp=\E[6~, kpp=\E[5~,
"""
# How a cell looks; colour is 0..7, None is the terminal's own.
Look = collections.namedtuple("Look", "bold dim reverse colour")
PLAIN = Look(False, False, False, None)
COMMAND = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


def compile_entry(folder):
    source = os.path.join(folder, "terminfo.src")
    with open(source, "w") as file:
        file.write(ENTRY)
    subprocess.run(["tic", "-x", "-o", os.path.join(folder, "terminfo"), source], check=True)
    return os.path.join(folder, "terminfo")


def look_after(look, value):
    """The look after one number of the command "m"."""
    if value == 0:
        return PLAIN
    if 30 <= value <= 39:
        return look._replace(colour=value - 30 if value < 38 else None)
    switch = {1: "bold", 2: "dim", 7: "reverse"}.get(value)
    return look._replace(**{switch: True}) if switch else look


class Terminal:
    def __init__(self, argv, env, rows=24, columns=80):
        self.raw, self.status, self.modes = b"", None, set()
        self.pending, self.look, self.y, self.x = "", PLAIN, 0, 0
        go_read, go_write = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(go_read, 1)
            os.execvpe(argv[0], argv, env)
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.fd)
        os.write(go_write, b"!")
        os.close(go_read)
        os.close(go_write)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.looks = [[PLAIN] * columns for _ in range(rows)]
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # --- what it draws --------------------------------------------------------------------------

    def clear(self, y, x, end):
        for i in range(x, end):
            self.cells[y][i], self.looks[y][i] = " ", PLAIN

    def command(self, private, numbers, letter):
        values = [int(n) for n in numbers.split(";") if n]
        if private:
            (self.modes.add if letter == "h" else self.modes.discard)(values[0])
        elif letter == "H":
            self.y, self.x = [v - 1 for v in values] if values else (0, 0)
        elif letter == "J":
            if not values:
                self.clear(self.y, self.x, self.columns)
            for y in range(self.y + 1 if not values else 0, self.rows):
                self.clear(y, 0, self.columns)
        elif letter == "K":
            self.clear(self.y, self.x, self.columns)
        elif letter == "m":
            for value in values or [0]:
                self.look = look_after(self.look, value)

    def put(self, char):
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self.y += 1
        elif char == "\b":
            self.x -= 1
        else:
            # a size that is not the one it draws for any more: what is outside is lost
            if 0 <= self.y < self.rows and 0 <= self.x < self.columns:
                self.cells[self.y][self.x], self.looks[self.y][self.x] = char, self.look
            self.x += 1
            if self.x == self.columns and self.y + 1 < self.rows:  # am
                self.x, self.y = 0, self.y + 1

    def draw(self, data):
        self.raw += data
        text = self.pending + data.decode("utf-8", "surrogateescape")
        self.pending = ""
        i = 0
        while i < len(text):
            found = COMMAND.match(text, i)
            if found:
                self.command(*found.groups())
                i = found.end()
            elif text[i] == "\x1b" and len(text) - i < 16:
                self.pending = text[i:]
                return
            else:
                self.put(text[i])
                i += 1

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def selected(self):
        """The line that is shown in reverse, or None."""
        for y, row in enumerate(self.looks):
            if all(look.reverse for look in row):
                return "".join(self.cells[y]).rstrip()
        return None

    # --- what it is told ------------------------------------------------------------------------

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def kill(self, number):
        os.kill(self.pid, number)

    def read(self, seconds):
        """Returns False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.draw(data)
        return bool(data)

    def wait(self, condition, what=""):
        """Until condition() holds; says what is on the screen when it does not."""
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until or not self.read(0.05):
                raise AssertionError("%s; the screen is:\n%s" % (what or "not seen", self.text()))

    def wait_text(self, text):
        self.wait(lambda: text in self.text(), "\"%s\" is not on the screen" % text)

    def end(self):
        """Waits for the end; returns the exit code, or minus the signal."""
        until = time.monotonic() + PATIENCE
        while self.read(0.05) and time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                break
        if self.status is None:
            if time.monotonic() >= until:
                os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitpid(self.pid, 0)[1]
        return os.waitstatus_to_exitcode(self.status)

    def restored(self):
        """The terminal is as it was: its settings, its other screen, its cursor."""
        while self.read(0):
            if not select.select([self.fd], [], [], 0)[0]:
                break
        return 1049 not in self.modes and 25 in self.modes and termios.tcgetattr(self.fd) == self.before

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
