"""Counts the colorful pixels of a PNG as browsers write it (8 bits, RGB or RGBA, not interlaced)."""
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


def main(path):
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
    before, colorful = bytearray(width * step), 0
    for row in range(height):
        start = row * (1 + width * step)
        line = bytearray(raw[start + 1:start + 1 + width * step])
        before = unfilter(raw[start], line, before, step)
        for x in range(0, width * step, step):
            colorful += max(before[x:x + 3]) - min(before[x:x + 3]) > 60
    print(colorful)


main(sys.argv[1])
