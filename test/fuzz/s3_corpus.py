#!/usr/bin/env python3
"""Writes corpus/s3_*: what a store has of a disk of objects, and what it says (fuzz_s3_*.c)."""
import json
import os
import struct
import sys
import zlib

sys.dont_write_bytecode = True  # the tree stays clean
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../interop"))
import s3_store  # noqa: E402

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def write(folder, name, data):
    os.makedirs(os.path.join(TOP, folder), exist_ok=True)
    with open(os.path.join(TOP, folder, name), "wb") as out:
        out.write(data)


def manifest(**more):
    all_of = {"format": "ublkd-s3-disk", "version": 1, "id": "0123456789abcdef" * 2, "size": 1 << 26, "object_size": 1 << 22,
              "generation": 9, "map": "map/00000009.0a", "owner": "fe" * 16, "host": "vm", "beat": 7, "snapshots": []}
    all_of.update(more)
    return json.dumps(all_of).encode()


def snapshot(name, generation=3):
    return {"name": name, "map": "map/00000003.0b", "generation": generation, "time": 1795608000}


write("s3_manifest", "plain", b"\0" + manifest())
write("s3_manifest", "new", b"\0" + manifest(generation=1, map="", owner="", host=""))
write("s3_manifest", "snapshots", b"\0" + manifest(snapshots=[snapshot("a"), snapshot("b.1", 9)]))
write("s3_manifest", "many", b"\0" + manifest(snapshots=[snapshot(f"s{i}") for i in range(128)]))
write("s3_manifest", "newer", b"\0" + manifest(version=2))
write("s3_manifest", "stored", b"\0" + manifest(stored={"generation": 9, "objects": 5, "seq": 17}))
write("s3_manifest", "small", b"\0" + manifest(size=4096, object_size=65536))
write("s3_manifest", "empty", b"\0{}")
for number, name, value in ((2, "size", b"1048576"), (3, "object-size", b"4194304"), (4, "generation", b"2147483647"),
                            (5, "map", b'"map/00000001.0a"'), (7, "host", b'"vm"'), (8, "beat", b"7"),
                            (9, "snapshots", json.dumps([snapshot("a"), snapshot("b", 9)]).encode()), (10, "stored", b'{"generation":9,"objects":16777216,"seq":2147483647}')):
    write("s3_manifest", f"field-{name}", bytes([11 + number]) + value)


def entries(*of):
    return b"".join(struct.pack("<III", *entry) for entry in of)


def header(body, objects=200, generation=9, version=1):
    return struct.pack("<8sIIIIII", b"ublkdmap", version, objects, len(body) // 12, generation, zlib.crc32(body), 0) + body


body = entries((0, 1, 1), (5, 8, 0x7FFFFFFF), (199, 2, 3))
write("s3_map", "plain", b"\0" + header(body))
write("s3_map", "empty", b"\0" + header(b""))
write("s3_map", "other-disk", b"\0" + header(body, objects=100))
write("s3_map", "mended", b"\1" + header(body))
write("s3_map", "full", b"\1" + header(entries(*[(i, i % 8 + 1, i + 1) for i in range(200)])))
write("s3_map", "twice", b"\1" + header(entries((1, 1, 1), (1, 1, 2))))
write("s3_map", "later", b"\1" + header(entries((1, 9, 1))))


def page(*keys, token=None):
    text = "".join(f"<Contents><Key>{key}</Key><ETag>&quot;x&quot;</ETag><Size>{size}</Size></Contents>" for key, size in keys)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else \
        "<IsTruncated>false</IsTruncated>"
    return f'<?xml version="1.0"?><ListBucketResult><Name>b</Name>{more}{text}</ListBucketResult>'.encode()


OBJECT = "vm%201%2Fa%2Fo%2F00000002%2F0000000a.00000003"
write("s3_list", "empty", page())
write("s3_list", "one", page((OBJECT, 65536)))
write("s3_list", "hole", page((OBJECT, 65536), ("vm+1/a/o/00000002/0000000a.00000004", 0)))
write("s3_list", "more", page((OBJECT, 65536), token="vm 1/a&amp;b/o"))
write("s3_list", "foreign", page((OBJECT, 65536), ("vm%201/a/manifest", 700), ("other", 0)))
write("s3_list", "cut", page((OBJECT, 65536))[:-60])
for name in ("capital", "one", "space", "attribute", "namespace", "tags", "cdata", "comment", "reference", "doctype", "count", "common",
             "slash", "maybe"):
    of = page((OBJECT, 65536), token="vm 1/a&amp;b/o").decode().replace("<Name>b</Name>", "<KeyCount>1</KeyCount>")
    write("s3_list", f"written-{name}", s3_store.LISTS[name](of, "vm 1/a/o/").encode())


def refusal(verdict, status, document, region=b""):
    return bytes([verdict, status, len(region)]) + region + document.encode()


write("s3_refusal", "denied", refusal(0, 4, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"))
write("s3_refusal", "anonymous", refusal(0x80, 4, "<Error><Code>AccessDenied</Code></Error>"))
write("s3_refusal", "region", refusal(2, 0, "<Error><Code>PermanentRedirect</Code><Region>eu-1</Region></Error>", b"eu-central-1"))
write("s3_refusal", "slow", refusal(1, 10, "<Error><Code>SlowDown</Code></Error>"))
write("s3_refusal", "timeout", refusal(0, 2, "<Error><Code>RequestTimeout</Code></Error>"))
write("s3_refusal", "long", refusal(0, 4, "<Error><Code>" + "c" * 200 + "</Code><Message>" + "m" * 500))
write("s3_refusal", "html", refusal(0, 5, "<html>nginx</html>"))
write("s3_refusal", "cdata", refusal(0, 4, '<e:Error xmlns:e="x"><Code a="b"><![CDATA[AccessDenied]]></Code ></e:Error>'))
write("s3_refusal", "entity", refusal(0, 4, "<!DOCTYPE Error [<!ENTITY e 'x'>]><Error><Code>&e;</Code></Error>"))
