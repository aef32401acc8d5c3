#!/usr/bin/env python3
"""Fails when a file has what does something to a terminal, or is no UTF-8: nothing but newlines and letters may be in
it. Usage: printable.py FILE"""
import re
import sys

DOES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

with open(sys.argv[1], "rb") as file:
    data = file.read()
try:
    found = DOES.findall(data.decode())
except UnicodeDecodeError as error:
    found = error
if found:
    print("not printable:", ascii(found), ascii(data))
    sys.exit(1)
