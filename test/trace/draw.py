#!/usr/bin/env python3
"""Draws a part of a trace as SVG: the tracks, slices and arrows that a viewer shows.
Usage: draw.py FILE.pftrace[.gz]|FILE.fxt [--from NS] [--for NS] [--tracks WORD,WORD...] > OUT.svg
--from counts from the first slice. Without: the longest request of a ublk device, and what is around it."""

import argparse
import html
import zlib

import fxt_read
import perfetto_read

LEFT, WIDTH, ROW, GAP = 190, 1010, 17, 26
ARROWS = {"submit": "#8a8a8a", "waiting": "#c77700", "complete": "#1a73c8", "thread": "#7b3fb3", "ublk": "#1d8a4a"}


def colour(name):
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
    def __init__(self, model, begin, end, words):
        self.model, self.begin, self.end, self.out = model, begin, end, []
        shown = [s for s in model.slices if s.end > begin and s.start < end and self.wanted(s.track, words)]
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

    def wanted(self, track, words):
        process, name = self.model.tracks[track]
        path = f"{self.model.processes[process]}/{name}"
        return not words or any(word in path for word in words)

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
            self.out.append(f'<path d="M{LEFT} {y + deep * ROW + 1}h{WIDTH}" stroke="#eee"/>')
            y += deep * ROW + 4
        self.height = y + 12

    def rank(self, track):
        """The program first, then its ring, the device, the daemon's ring, the daemon."""
        name = self.model.processes[self.model.tracks[track][0]]
        if "ublkd" in name or "reactor" in name:
            return 3 if name.startswith("ring ") else 4
        return 2 if name.startswith("ublkb") else 1 if name.startswith("ring ") else 0

    def x(self, time):
        return LEFT + max(0.0, min(1.0, (time - self.begin) / (self.end - self.begin))) * WIDTH

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
            if room >= 3:
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
            self.out.append(f'<path d="M{x:.1f} 22V{self.height}" stroke="#ddd" stroke-dasharray="2 3"/>')
            self.text(x + 2, 18, f"{n * step / 1000:g} us", "10px sans-serif")

    def svg(self):
        body, self.out = self.out, []
        self.axis()
        self.slices()
        self.arrows()
        head = ('<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
                '<path d="M0 0 6 3 0 6z" fill="#444"/></marker></defs><rect width="100%" height="100%" fill="#fff"/>')
        width = LEFT + WIDTH + 20
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {self.height}" width="{width}">\n'
                + "\n".join([head] + body + self.out) + "\n</svg>")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--from", dest="start", type=int)
    parser.add_argument("--for", dest="length", type=int, default=0)
    parser.add_argument("--tracks", default="")
    options = parser.parse_args()
    reader = fxt_read if ".fxt" in options.file else perfetto_read
    model = reader.read(options.file)
    begin, end = window(model, options.start, options.length or (10**6 if options.start is not None else 0))
    print(Picture(model, begin, end, [w for w in options.tracks.split(",") if w]).svg())


if __name__ == "__main__":
    main()
