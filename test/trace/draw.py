#!/usr/bin/env python3
"""Draws a part of a trace as SVG: the tracks, slices and arrows that a viewer shows.
Usage: draw.py FILE.pftrace[.gz]|FILE.fxt [--from NS] [--for NS] [--tracks WORD,WORD...] [--without WORD,WORD...]
    [--width PIXELS] > OUT.svg
--from counts from the first slice. Without: a longer request of a ublk device, and what is around it. --tracks and
--without choose by words in the names of process and track; --width is that of the time axis."""

import argparse
import html
import zlib

import fxt_read
import perfetto_read

LEFT, ROW, GAP = 190, 17, 26
ARROWS = {"submit": "#8a8a8a", "waiting": "#c77700", "complete": "#1a73c8", "thread": "#7b3fb3", "ublk": "#1d8a4a"}


# What is beside each other differs; other names have a colour of their own.
COLOURS = {"read": "#9cc3f5", "write": "#f0a9a0", "queued": "#f3d08b", "reap": "#c3b5ec", "daemon": "#8fd6a9",
           "backend read": "#7fc8c4", "backend write": "#7fc8c4", "commit": "#d9d9d9", "off CPU": "#e6e6e6",
           "wait": "#dfe7ef", "io_uring_enter": "#b9d6ea"}


def colour(name):
    if name in COLOURS:
        return COLOURS[name]
    return f"hsl({zlib.crc32(name.encode()) % 360} 55% 72%)"


def window(model, start, length):
    first = min(s.start for s in model.slices)
    if start is not None:
        return first + start, first + start + length
    requests = [s for s in model.slices if model.kind(s) == "ublk request"] or model.slices
    middle = sorted(requests, key=lambda s: s.end - s.start)[len(requests) * 3 // 4]
    span = length or 2 * (middle.end - middle.start)
    return middle.start - span // 5, middle.start - span // 5 + span


class Picture:
    def __init__(self, model, begin, end, words, unwanted, width):
        self.model, self.begin, self.end, self.width, self.out = model, begin, end, width, []
        shown = [s for s in model.slices if s.end > begin and s.start < end and self.wanted(s.track, words, unwanted)]
        self.depth, self.rows = {}, {}
        stacks = {}
        for s in shown:
            stack = stacks.setdefault(s.track, [])
            while stack and stack[-1].end <= s.start:
                stack.pop()
            self.depth[s] = len(stack)
            stack.append(s)
        self.shown = shown
        self.layout()

    def wanted(self, track, words, unwanted):
        process, name = self.model.tracks[track]
        path = f"{self.model.processes[process]}/{name}"
        return (not words or any(word in path for word in words)) and not any(word in path for word in unwanted)

    def layout(self):
        """One row for each depth of each track, below the name of its process."""
        y = 30
        order = sorted({s.track for s in self.shown}, key=lambda t: (self.rank(t), self.model.tracks[t][0], t))
        last = None
        for track in order:
            process = self.model.tracks[track][0]
            if process != last:
                y += GAP
                self.text(8, y - 6, self.model.processes[process], "bold 12px sans-serif")
                last = process
            self.rows[track] = y
            self.text(16, y + 12, self.model.tracks[track][1], "11px sans-serif")
            deep = max(self.depth[s] for s in self.shown if s.track == track) + 1
            self.out.append(f'<path d="M{LEFT} {y + deep * ROW + 1}h{self.width}" stroke="#eee"/>')
            y += deep * ROW + 4
        self.height = y + 12

    def rank(self, track):
        """The program first, then its ring, the device, the daemon's ring, the daemon."""
        name = self.model.processes[self.model.tracks[track][0]]
        if "ublkd" in name or "reactor" in name:
            return 3 if name.startswith("ring ") else 4
        return 2 if name.startswith("ublkb") else 1 if name.startswith("ring ") else 0

    def x(self, time):
        return LEFT + max(0.0, min(1.0, (time - self.begin) / (self.end - self.begin))) * self.width

    def y(self, s):
        return self.rows[s.track] + self.depth[s] * ROW

    def text(self, x, y, text, font):
        self.out.append(f'<text x="{x:.1f}" y="{y}" style="font:{font}">{html.escape(text)}</text>')

    def slices(self):
        for s in self.shown:
            left, right = self.x(s.start), max(self.x(s.end), self.x(s.start) + 2)
            title = f"{s.name} {s.end - s.start} ns\n" + "\n".join(f"{k}: {v}" for k, v in s.args.items())
            self.out.append(f'<rect x="{left:.1f}" y="{self.y(s)}" width="{right - left:.1f}" height="{ROW - 2}" '
                            f'fill="{colour(s.name)}" stroke="#777" stroke-width=".4"><title>{html.escape(title)}</title></rect>')
            room = int((right - left) / 6)
            if room >= min(len(s.name), 5):
                self.text(left + 2, self.y(s) + 11, s.name[:room], "10px sans-serif")

    def arrows(self):
        begins = {flow: s for s in self.shown for flow in s.flows_out}
        for s in self.shown:
            for a in (begins[flow] for flow in s.flows_in if flow in begins):
                if a.start < self.begin or s.start > self.end:
                    continue
                x1, y1, x2, y2 = self.x(a.start), self.y(a) + ROW / 2, self.x(s.start), self.y(s) + ROW / 2
                stroke = ARROWS.get(self.model.kind(a).split()[0], "#c03030")
                self.out.append(f'<path d="M{x1:.1f} {y1:.1f}C{x1 + 25:.1f} {y1:.1f} {x2 - 25:.1f} {y2:.1f} {x2:.1f} {y2:.1f}" '
                                f'fill="none" stroke="{stroke}" stroke-width="1" marker-end="url(#head)" opacity=".75"/>')

    def axis(self):
        step = 10 ** (len(str((self.end - self.begin) // 5)) - 1)
        step *= max(1, (self.end - self.begin) // step // 8)
        for n in range((self.end - self.begin) // step + 1):
            x = self.x(self.begin + n * step)
            if x > LEFT + self.width - 30:  # no room for its text
                break
            self.out.append(f'<path d="M{x:.1f} 22V{self.height}" stroke="#ddd" stroke-dasharray="2 3"/>')
            self.text(x + 2, 18, f"{n * step / 1000:g} us", "10px sans-serif")

    def svg(self):
        body, self.out = self.out, []
        self.axis()
        self.slices()
        self.arrows()
        head = ('<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
                '<path d="M0 0 6 3 0 6z" fill="#444"/></marker></defs><rect width="100%" height="100%" fill="#fff"/>')
        width = LEFT + self.width + 20
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {self.height}" width="{width}">\n'
                + "\n".join([head] + body + self.out) + "\n</svg>")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--from", dest="start", type=int)
    parser.add_argument("--for", dest="length", type=int, default=0)
    parser.add_argument("--tracks", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("--width", type=int, default=1010)
    options = parser.parse_args()
    reader = fxt_read if ".fxt" in options.file else perfetto_read
    model = reader.read(options.file)
    begin, end = window(model, options.start, options.length or (10**6 if options.start is not None else 0))
    words, unwanted = ([w for w in text.split(",") if w] for text in (options.tracks, options.without))
    print(Picture(model, begin, end, words, unwanted, options.width).svg())


if __name__ == "__main__":
    main()
