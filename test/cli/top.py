#!/usr/bin/env python3
"""ublkctl top as a person sees it: a real program in a pseudo terminal, a ublkd that does not exist.
Prints TAP. Usage: top.py [BIN_FOLDER] [TEST...]. No check waits for a time: each waits for what is
to be seen, and says what was on the screen when it is not."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
import terminal  # noqa: E402
from fake_ublkd import Device, Ublkd  # noqa: E402

top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ublkctl = os.path.join(sys.argv[1] if len(sys.argv) > 1 else os.path.join(top, "build/release/bin"), "ublkctl")
tmp = tempfile.mkdtemp(prefix="ublkd-top.")
path = os.path.join(tmp, "control.sock")
INTERVAL = "0.05"


class Rig:
    """What a test uses and what is cleaned up after it."""

    def __init__(self):
        self.daemon, self.terminals, self.programs = None, [], []

    def serve(self, *devices):
        self.daemon = Ublkd(path, devices)
        return self.daemon

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k != "LANG"}
        env.update(TERM="ublkd-test", TERMINFO=terminfo, LC_ALL="C.UTF-8", **{"TZ": "UTC"})
        env.update(more)
        return env

    def screen(self, *args, rows=24, columns=110, **env):
        one = terminal.Terminal([ublkctl, "--socket", path, "top", "--interval", INTERVAL, *args],
                                self.environment(**env), rows, columns)
        self.terminals.append(one)
        return one

    def batch(self, *args, stdin=subprocess.DEVNULL, **env):
        one = subprocess.Popen([ublkctl, "--socket", path, "top", "--interval", INTERVAL, *args],
                               stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=self.environment(**env))
        self.programs.append(one)
        return one

    def output(self, *args, code=0, **env):
        one = self.batch(*args, **env)
        out, err = one.communicate(timeout=terminal.PATIENCE)
        assert one.returncode == code, "exit code %d: %s" % (one.returncode, err.decode())
        return re.sub(r"\d\d:\d\d:\d\d", "TIME", out.decode())

    def close(self):
        for one in self.terminals:
            one.close()
        for one in self.programs:
            one.kill()
            one.wait()
            one.stdout.close()
            one.stderr.close()
        if self.daemon and os.path.exists(path):
            self.daemon.stop()


def equal(seen, wanted):
    assert seen == wanted, "seen:\n%s\nwanted:\n%s" % (seen, wanted)


def has(text, part):
    assert part in text, "\"%s\" is not in:\n%s" % (part, text)


def wait_line(pipe, part):
    """Lines of a program until one has the part; its end is a failure."""
    seen = b""
    for line in pipe:
        seen += line
        if part in line.decode():
            return line.decode()
    raise AssertionError("\"%s\" is not in:\n%s" % (part, seen.decode()))


# --- text ---------------------------------------------------------------------------------------

def test_batch(rig):
    rig.serve(Device("a", 1000, failed_rate=2), Device("b", 0, state="failed"))
    text = rig.output("--batch", "--count", "2")
    first, second = text.split("\n\n" + "ublkctl", 1)
    for frame in first, second:
        frame = frame.replace(first.split("\n")[0], "")
        has(frame, """
DEVICE  STATE     BACKEND            IOPS    BYTES/S  IN FLIGHT     P50     P99  ERRORS                P99 SO FAR
a       live      throttle > file   1.00k     3.9MiB          3    82us    82us       2""")
        has(frame, """
b       failed    throttle > file       0         0B          3       -       -       0

a: p50 and p99 of each layer
OP              IOPS          TOTAL       THROTTLE         DAEMON        BACKEND
read           1.00k    82us   82us     0ns    0ns    16us   16us    66us   66us

REACTOR    CPU   TURNS/S   CQES/TURN    CODE  KERNEL    POLL    IDLE  STALLS  SQ FULL  LATE TIMERS
data         0 """)
        has(frame, "4.0   25.0%   20.0%    5.0%   50.0%       2        0            0\n")
    has(first, "ublkctl top TIME  2 devices  every 0.05s, last 1.00s  by IOPS\n")
    has(second, "2                        ██\n")


def test_text_when_stdout_is_no_terminal(rig):
    rig.serve(Device("a", 1000))
    text = rig.output("--count", "1", "a", LC_ALL="C")
    has(text, "a  live  throttle > file  1.00k IOPS  3.9MiB/s  3 in flight\n")
    has(text, "read          total      1.00k    80us    82us    82us    82us    82us    82us\n"
              "              daemon     1.00k    16us    16us    16us    16us    16us    16us\n")
    has(text, "   66us   1.00k  ####################                         #\n")
    assert text.isascii() and "\033" not in text, text


def test_batch_on_a_terminal(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen("--batch", "--count", "1", columns=120)
    equal(screen.end(), 0)
    has(screen.raw.decode(), "1.00k")
    assert b"\033" not in screen.raw, screen.raw


def test_terminal_that_can_do_nothing(rig):
    rig.serve(Device("a", 1000))
    for term in "dumb", "no-such-terminal":
        screen = rig.screen("--count", "1", TERM=term, columns=120)
        equal(screen.end(), 0)
        has(screen.raw.decode(), "TERM=%s" % term)
        has(screen.raw.decode(), "1.00k")


def test_batch_without_ublkd(rig):
    text = rig.output("--batch", "--count", "2", code=1)
    equal(text.count("not connected: no process serves %s: start ublkd" % path), 2)


def test_batch_over_a_restart(rig):
    one = rig.batch("--batch")
    wait_line(one.stdout, "not connected: no process serves")
    daemon = rig.serve(Device("a", 1000))
    wait_line(one.stdout, "1.00k")
    daemon.stop()
    wait_line(one.stdout, "not connected")
    daemon.devices = [Device("a", 70)]  # counts from zero again
    daemon.start()
    has(wait_line(one.stdout, "a       live"), "   70 ")


def test_batch_no_devices(rig):
    rig.serve()
    has(rig.output("--batch", "--count", "1"), "0 devices")
    has(rig.output("--batch", "--count", "1"), "\nno devices\n")


def test_batch_counters_reset(rig):
    device = Device("a", 1000)
    rig.serve(device)
    one = rig.batch("--batch")
    wait_line(one.stdout, "1.00k")
    with rig.daemon.lock:
        device.zero()
        device.read_rate = 50
    has(wait_line(one.stdout, "   50 "), "throttle > file      50     200KiB")


def test_answers_that_are_none(rig):
    rig.serve(Device("a", 1000))
    for answer, words in ({"ok": False, "error": "too many clients"}, "too many clients"), ([1], "not JSON"):
        rig.daemon.answer = lambda request, answer=answer: answer
        has(rig.output("--batch", "--count", "1", code=1), words)


# --- the screen ---------------------------------------------------------------------------------

def test_screen(rig):
    rig.serve(Device("a", 1000), Device("b", 25000, total_ns=120000))
    screen = rig.screen()
    screen.wait(lambda: "a       live      throttle > file   1.00k     3.9MiB          3    82us    82us       0"
                in screen.text() and "read           1.00k    82us" in screen.text(), "devices and layers")
    screen.wait_text("data         0")
    screen.wait(lambda: "q quit" in screen.lines()[-1], "the last line")
    equal(screen.lines()[2][:1], "b")  # the busiest first
    screen.wait(lambda: "███" in screen.text(), "sparkline")
    screen.press("q")
    equal(screen.end(), 0)
    assert screen.restored()


def test_screen_ascii(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen(LC_ALL="C")
    screen.wait(lambda: re.search(r"####", screen.text()), "sparkline of ASCII")
    screen.press("\r")
    screen.wait_text("66us   1.00k  ####################")
    assert screen.text().isascii()


def test_screen_of_80_columns_has_a_sparkline(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen(columns=80)
    screen.wait(lambda: re.search(r"each layer  p99 +█", screen.text()), "sparkline beside the layers")


def test_select(rig):
    rig.serve(*[Device("dev%d" % i, 0) for i in range(5)])
    screen = rig.screen()
    for keys, name in (("", "dev0"), ("j", "dev1"), ("jj", "dev3"), ("k", "dev2"), ("\033OB", "dev3"),
                       ("\033OA\033OA", "dev1")):
        screen.press(keys)
        screen.wait(lambda: (screen.selected() or "").startswith(name + " "), "%s selected" % name)
        screen.wait_text(name + ": p50 and p99")


def test_layers_begin_when_selected(rig):
    """Not with the next sample: that one has something to be compared with."""
    rig.serve(Device("a", 1000), Device("b", 2000))
    screen = rig.screen("--interval", "300")
    screen.wait(lambda: rig.daemon.layers_asked == ["a"])
    screen.press("j")  # a: nothing is measured yet, all are sorted by name
    screen.wait(lambda: rig.daemon.layers_asked == ["a", "b"])
    equal(rig.daemon.samples, 1)


def test_device_page(rig):
    rig.serve(Device("a", 1000), Device("b", 2000))
    screen = rig.screen()
    screen.wait_text("a: p50")
    screen.press("\r")
    screen.wait_text("read          total      1.00k")
    screen.wait_text("backend    1.00k    64us")
    screen.wait_text("66us   1.00k  ████████████████████")
    screen.press("k")
    screen.wait_text("b  live")
    screen.wait_text("read          total      2.00k")
    for back in "\033", "\x7f", "\b":
        screen.press(back)
        screen.wait_text("REACTOR")
        screen.press("\r")
        screen.wait_text("P99.9")


def test_sort_reverse(rig):
    rig.serve(Device("a", 10), Device("b", 30), Device("c", 20))
    screen = rig.screen()

    def order(names):
        screen.wait(lambda: "".join(line[:1] for line in screen.lines()[2:5]) == names, "order " + names)
    order("bca")
    screen.press("r")
    order("acb")
    has(screen.lines()[0], "by IOPS, reversed")
    screen.press("rs")
    screen.wait(lambda: "by bytes/s" in screen.lines()[0])
    screen.press("sssss")
    order("abc")
    has(screen.lines()[0], "by name")


def test_pause(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen("--interval", INTERVAL)
    screen.wait_text("1.00k")
    screen.press(" ")
    screen.wait_text("paused")
    screen.press("?")
    screen.wait_text("this help")
    samples = rig.daemon.samples
    screen.press("?jkjk")
    screen.wait_text("REACTOR")
    for _ in range(10):  # intervals, for what must not happen
        screen.read(float(INTERVAL))
    # the daemon may come late to the question that was under way when the pause began, not to more
    assert rig.daemon.samples <= samples + 1, "%d more" % (rig.daemon.samples - samples)
    samples = rig.daemon.samples
    screen.press(" ")
    screen.wait(lambda: rig.daemon.samples > samples + 3, "it goes on")
    screen.wait(lambda: "paused" not in screen.text())


def test_interval_and_help(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen("--interval", "1")
    screen.wait_text("every 1s")
    screen.press("+")
    screen.wait_text("every 2s")
    screen.press("--")
    screen.wait_text("every 0.5s")
    screen.press("?")
    screen.wait_text("sort by the next column")
    screen.press("\033")
    screen.wait_text("DEVICE")


def test_resize(rig):
    rig.serve(*[Device("dev%02d" % i, 0) for i in range(30)])
    screen = rig.screen()
    screen.wait_text("dev00")
    for rows, columns in (40, 150), (10, 60), (1, 1), (5, 20), (24, 80):
        screen.resize(rows, columns)
        if rows > 1:  # nothing can be drawn in the last corner of this terminal
            screen.wait(lambda: screen.lines()[0].startswith("ublkctl top"), "drawn anew")
            screen.wait(lambda: screen.lines()[-1].startswith("j k select"), "the last line")
    screen.press("\033[6~")
    screen.wait(lambda: (screen.selected() or "").startswith("dev10 "), "ten lines down")


def test_device_vanishes_from_the_list(rig):
    rig.serve(Device("a", 30), Device("b", 20), Device("c", 10))
    screen = rig.screen()
    screen.wait_text("a: p50")
    screen.press("j")
    screen.wait(lambda: (screen.selected() or "").startswith("b "))
    with rig.daemon.lock:
        del rig.daemon.devices[1]
    screen.wait(lambda: (screen.selected() or "").startswith("c "), "what took its place")
    with rig.daemon.lock:
        rig.daemon.devices.clear()
    screen.wait_text("no devices")
    screen.press("jk\rs")
    with rig.daemon.lock:
        rig.daemon.devices.append(Device("d", 10))
    screen.press("\033")
    screen.wait(lambda: (screen.selected() or "").startswith("d "))


def test_device_vanishes_from_its_page(rig):
    rig.serve(Device("a", 1000), Device("b", 1000))
    screen = rig.screen("a")
    screen.wait_text("read          total      1.00k")
    with rig.daemon.lock:
        del rig.daemon.devices[0]
    screen.wait_text("there is no device \"a\"")
    with rig.daemon.lock:
        rig.daemon.devices.append(Device("a", 50))
    screen.wait_text("read          total         50")


def test_restart(rig):
    daemon = rig.serve(Device("a", 1000))
    screen = rig.screen()
    screen.wait_text("1.00k")
    daemon.stop()
    screen.wait_text("not connected: no process serves")
    screen.wait(lambda: "1.00k" not in screen.text(), "old numbers are gone")
    daemon.devices = [Device("a", 50)]
    daemon.start()
    screen.wait(lambda: re.search(r"a +live .* 50 ", screen.text()), "the new one")


def test_daemon_that_does_not_answer(rig):
    """The screen is alive while it waits."""
    rig.serve(Device("a", 1000))
    screen = rig.screen()
    screen.wait_text("1.00k")
    rig.daemon.lock.acquire()
    asked = rig.daemon.asked
    screen.wait(lambda: rig.daemon.asked > asked, "a question that is not answered")
    screen.press("?")
    screen.wait_text("this help")
    screen.press("q")
    equal(screen.end(), 0)
    rig.daemon.lock.release()
    assert screen.restored()


def test_terminal_is_restored(rig):
    rig.serve(Device("a", 1000))
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT:
        screen = rig.screen()
        screen.wait_text("1.00k")
        assert not screen.restored()
        screen.kill(number)
        equal(screen.end(), -number)
        assert screen.restored(), number
    screen = rig.screen()
    screen.wait_text("1.00k")
    screen.press("\x03")
    equal(screen.end(), -signal.SIGINT)
    assert screen.restored()
    screen = rig.screen("--count", "2")
    equal(screen.end(), 0)
    assert screen.restored()


def test_no_color(rig):
    rig.serve(Device("a", 1000))
    screen = rig.screen(NO_COLOR="1")
    screen.wait_text("1.00k")
    assert not re.search(rb"\033\[3\d", screen.raw), screen.raw
    screen = rig.screen()
    screen.wait_text("1.00k")
    assert re.search(rb"\033\[32", screen.raw), screen.raw


# --- the program --------------------------------------------------------------------------------

def main():
    names = sys.argv[2:] or [name for name in globals() if name.startswith("test_")]
    bad = 0
    print("1..%d" % len(names))
    for n, name in enumerate(names, 1):
        rig = Rig()
        try:
            globals()[name](rig)
            print("ok %d - %s" % (n, name))
        except Exception:
            bad = 1
            print("not ok %d - %s" % (n, name))
            print("".join("# %s\n" % line for line in traceback.format_exc().splitlines()), end="")
        finally:
            rig.close()
        sys.stdout.flush()
    return bad


try:
    terminfo = terminal.compile_entry(tmp)
    sys.exit(main())
finally:
    shutil.rmtree(tmp)
