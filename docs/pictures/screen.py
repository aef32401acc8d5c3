#!/usr/bin/env python3
"""The screen of `ublkctl top` as SVG: the list of devices, one of them selected, then the page of one, after some
seconds each. Usage: screen.py FOLDER SELECTED DEVICE. Writes FOLDER/top.svg and FOLDER/top-device.svg."""

import html
import os
import re
import sys
import tempfile
import time

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../test/cli"))
import terminal  # noqa: E402

COLUMNS, CELL, LINE, SIZE, EDGE = 112, 8.4, 18, 14, 16
INTERVAL = 1
# A dark terminal, which stands out on a light page and fits a dark one.
BACKGROUND, BORDER, PLAIN, BOLD, DIM = "#161b22", "#30363d", "#d0d7de", "#ffffff", "#7d8590"
COLOURS = {1: "#ff7b72", 2: "#56d364", 3: "#e3b341"}
BLOCKS = "▁▂▃▄▅▆▇█"  # eighths from below
PARTS = "▏▎▍▌▋▊▉"  # eighths from the left
SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}


def colour(look):
    if look.colour is not None:
        return COLOURS.get(look.colour, PLAIN)
    return BOLD if look.bold else DIM if look.dim else PLAIN


def runs(chars, looks):
    """(column, text, look) of the cells that look alike."""
    begin = 0
    for i in range(1, len(chars) + 1):
        if i == len(chars) or looks[i] != looks[begin]:
            yield begin, "".join(chars[begin:i]), looks[begin]
            begin = i


class Picture:
    def __init__(self, screen, rows):
        self.out = []
        self.width = round(2 * EDGE + COLUMNS * CELL)
        self.height = 2 * EDGE + rows * LINE
        for y in range(rows):
            for x, text, look in runs(screen.cells[y], screen.looks[y]):
                self.run(y, x, text, look)

    def rectangle(self, y, x, columns, fill, height=1.0, opacity=1.0):
        top = EDGE + (y + 1 - height) * LINE
        more = f' opacity="{opacity}"' if opacity < 1 else ""
        self.out.append(f'<rect x="{EDGE + x * CELL:.1f}" y="{top:.1f}" width="{columns * CELL:.1f}" '
                        f'height="{height * LINE:.1f}" fill="{fill}"{more}/>')

    def run(self, y, x, text, look):
        fill = colour(look)
        if look.reverse:
            self.rectangle(y, x, len(text), fill)
            fill = BACKGROUND
        # Blocks are drawn, so that they meet whatever the font is.
        for found in re.finditer("█+|[%s]" % BLOCKS[:-1], text):
            self.rectangle(y, x + found.start(), len(found[0]), fill, (BLOCKS.index(found[0][0]) + 1) / 8)
        for found in re.finditer("|".join(c + "+" for c in SHADES), text):
            self.rectangle(y, x + found.start(), len(found[0]), fill, opacity=SHADES[found[0][0]])
        for found in re.finditer("[%s]" % PARTS, text):
            self.rectangle(y, x + found.start(), (PARTS.index(found[0]) + 1) / 8, fill)
        weight = ' font-weight="bold"' if look.bold else ""
        for found in re.finditer(r"[^\s%s%s%s]+" % (BLOCKS, PARTS, "".join(SHADES)), text):
            self.out.append(f'<text x="{EDGE + (x + found.start()) * CELL:.1f}" y="{EDGE + y * LINE + SIZE}" '
                            f'textLength="{len(found[0]) * CELL:.1f}" fill="{fill}"{weight}>{html.escape(found[0])}</text>')

    def svg(self, title):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" '
                f'font-size="{SIZE}" shape-rendering="crispEdges">\n<title>{html.escape(title)}</title>\n'
                f'<rect x=".5" y=".5" width="{self.width - 1}" height="{self.height - 1}" rx="8" '
                f'fill="{BACKGROUND}" stroke="{BORDER}" shape-rendering="auto"/>\n' + "\n".join(self.out) + "\n</svg>\n")


def watch(screen, seconds):
    """Goes on drawing for that long, and then until a frame is complete."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not screen.read(0.1):
            sys.exit("screen.py: ublkctl top has ended: " + screen.text())
    while screen.read(0.2) and terminal.select.select([screen.fd], [], [], 0.2)[0]:
        pass


def top(folder, device, rows, seconds, name, title, selected=None):
    with tempfile.TemporaryDirectory() as tmp:
        env = dict(os.environ, TERM="ublkd-test", TERMINFO=terminal.compile_entry(tmp), LC_ALL="C.UTF-8", TZ="UTC")
        screen = terminal.Terminal(["ublkctl", "top", "--interval", str(INTERVAL), *device], env, rows, COLUMNS)
        try:
            screen.wait_text("q quit")
            while selected and not (screen.selected() or "").startswith(selected + " "):
                screen.press("j")
                watch(screen, INTERVAL)
            watch(screen, seconds)
            with open(os.path.join(folder, name), "w") as file:
                file.write(Picture(screen, rows).svg(title))
            print(screen.text())
        finally:
            screen.close()


def main():
    folder, selected, device = sys.argv[1:]
    top(folder, [], 18, 25, "top.svg", "ublkctl top: devices, the layers of one, reactors", selected)
    top(folder, [device], 31, 40, "top-device.svg", "ublkctl top: one device, its layers, a histogram and a heat map")


if __name__ == "__main__":
    main()
