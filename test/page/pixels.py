"""Counts the pixels of each colour that is given as R,G,B in a PNG as browsers write it (8 bits, RGB or RGBA, not
interlaced). Usage: pixels.py FILE COLOUR..."""
import struct
import sys
import zlib


def unfilter(kind, line, before, step):
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        up = before[i]
        corner = before[i - step] if i >= step else 0
        if kind == 1:
            line[i] = (line[i] + left) & 255
        elif kind == 2:
            line[i] = (line[i] + up) & 255
        elif kind == 3:
            line[i] = (line[i] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up),
                       (abs(guess - corner), 2, corner))
            line[i] = (line[i] + near[2]) & 255
    return line


def near(pixel, colour):
    return all(abs(a - b) <= 4 for a, b in zip(pixel, colour))


def main(path, colours):
    data = open(path, "rb").read()
    at, packed, width, height, step = 8, b"", 0, 0, 0
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        if name == b"IHDR":
            width, height, bits, kind = struct.unpack(">IIBB", chunk[:10])
            assert bits == 8 and kind in (2, 6), "an unusual PNG"
            step = 3 if kind == 2 else 4
        elif name == b"IDAT":
            packed += chunk
        at += 12 + length
    raw = zlib.decompress(packed)
    before, counts = bytearray(width * step), [0] * len(colours)
    for row in range(height):
        start = row * (1 + width * step)
        line = bytearray(raw[start + 1:start + 1 + width * step])
        before = unfilter(raw[start], line, before, step)
        for x in range(0, width * step, step):
            for i, colour in enumerate(colours):
                counts[i] += near(before[x:x + 3], colour)
    print(*counts)


main(sys.argv[1], [[int(part) for part in text.split(",")] for text in sys.argv[2:]])
