#!/usr/bin/env python3
"""A store with the parts of S3's protocol that disks of objects need, which misbehaves when told to.

As http_server.py, but for these settings and faults; objects are in memory, of any bucket.

    set s3=..., delay_ms=MS, conditional=0 (conditions are ignored; new: but for If-None-Match), bare=1 (an ETag with quotes does not
        match, as in Ceph 16.2), page=N (keys in a list, at most), chaos=N (one request in N gets
        one of lost, late, hangup and 503), seed=N (of it)
    fault KIND [N [ARG]] the next N requests (1; -1: all) get
                          status ARG   CODE or CODE:RETRY-AFTER, and nothing is done
                          xml ARG      an error of S3, as http_server.py has it, and nothing is done
                          hangup       the end of the connection, and nothing is done
                          lost         it is done, and the connection ends without an answer
                          late ARG     the connection ends; it is done ARG ms later
                          hold ARG     it is done ARG ms later or at `release`, and answered
                          half         a GET's answer has half of the bytes
    release             what is held is done now, and what would be held later
    objects [PREFIX]    how many there are
    drop KEY            the object is gone
    replace KEY :TEXT   the object is this text
    touch KEY :MS       the object is written anew in MS ms, as it is
"""

import hashlib
import random
import re
import threading
import time
from urllib.parse import parse_qs, quote, unquote

import http_server


class Store(http_server.Server):
    def __init__(self, args):
        self.objects = {}
        self.released = threading.Event()
        self.random = random.Random(1)
        super().__init__(args)
        self.counts.update(gets=0, puts=0, deletes=0, lists=0, put_bytes=0)

    def change(self, pairs):
        self.settings.setdefault("conditional", "1")
        self.settings.setdefault("bare", "0")
        self.settings.setdefault("page", "1000")
        self.settings.setdefault("chaos", "0")
        self.settings.setdefault("seed", "1")
        super().change(pairs)
        if any(pair.startswith("seed=") for pair in pairs):
            self.random = random.Random(int(self.settings["seed"]))

    def command(self, line):
        word, _, rest = line.partition(" ")
        if word == "release":
            self.released.set()
            return ""
        if word == "objects":
            with self.lock:
                return str(sum(key.startswith(rest) for key in self.objects))
        key, _, text = rest.partition(" :")
        if word == "drop":
            with self.lock:
                del self.objects[key]
            return ""
        if word == "replace":
            with self.lock:
                self.put(key, text.encode())
            return ""
        if word == "touch":
            threading.Timer(int(text) / 1000, self.touch, (key,)).start()
            return ""
        return super().command(line)

    def touch(self, key):
        with self.lock:
            self.put(key, self.objects[key][0])

    # ---- objects: the lock is held ----

    def put(self, key, body):
        etag = f'"{hashlib.md5(body).hexdigest()}-{self.random.randrange(1 << 32):08x}"'
        self.objects[key] = (body, etag)
        return etag

    def refused(self, key, headers):
        """The status that a condition asks for, or None."""
        if self.settings["conditional"] == "0":
            return None
        there = self.objects.get(key)
        if headers.get("if-none-match") == "*" and there:
            return 412
        if "if-match" not in headers or self.settings["conditional"] == "new":
            return None
        if not there:
            return 404
        if headers["if-match"] != (there[1].strip('"') if self.settings["bare"] == "1" else there[1]):
            return 412
        return None

    def act_put(self, key, headers, body):
        status = self.refused(key, headers)
        if status:
            return self.error(status)
        there = self.objects.get(key)
        if there and re.search(r"/o/[0-9a-f]{8}/", key) and there[0] != body:
            self.counts["violations"] += 1
            self.last_violation = f"written_twice:_{key}"
        self.counts["puts"] += 1
        self.counts["put_bytes"] += len(body)
        return 200, [f"ETag: {self.put(key, body)}"], b""

    def act_get(self, key, headers):
        there = self.objects.get(key)
        if not there:
            return self.error(404)
        if self.refused(key, headers):
            return self.error(412)
        body, etag = there
        self.counts["gets"] += 1
        want = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if not want:
            return 200, [f"ETag: {etag}"], body
        first, last = int(want[1]), min(int(want[2]), len(body) - 1)
        if first >= len(body):
            return self.error(416)
        return 206, [f"ETag: {etag}", f"Content-Range: bytes {first}-{last}/{len(body)}"], body[first:last + 1]

    def act_list(self, bucket, query):
        self.counts["lists"] += 1
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        prefix = bucket + "/" + fields.get("prefix", "")
        nr = min(int(fields.get("max-keys", 1000)), int(self.settings["page"]))
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > fields.get("continuation-token", ""))
        text = "".join(f"<Contents><Key>{quote(key.partition('/')[2], safe='')}</Key><ETag>&quot;x&quot;</ETag>"
                       f"<Size>{len(self.objects[key][0])}</Size></Contents>" for key in keys[:nr])
        more = "true" if len(keys) > nr else "false"
        token = f"<NextContinuationToken>{keys[nr - 1]}</NextContinuationToken>" if len(keys) > nr else ""
        return 200, [], (f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{text}'
                         f"</ListBucketResult>").encode()

    def act(self, method, path, headers, body):
        """Returns the status, headers and the body of the answer."""
        path, _, query = path.partition("?")
        key = unquote(path)[1:]
        with self.lock:
            if "list-type=2" in query:
                return self.act_list(key.rstrip("/"), query)
            if method == "PUT":
                return self.act_put(key, headers, body)
            if method == "DELETE":
                self.counts["deletes"] += 1
                self.objects.pop(key, None)
                return 204, [], b""
            return self.act_get(key, headers)

    @staticmethod
    def error(status):
        code = {404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}[status]
        return status, [], f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()

    # ---- requests ----

    def choose(self):
        fault, arg = self.take_fault()
        if fault or self.settings["chaos"] == "0":
            return fault, arg
        with self.lock:
            if self.random.randrange(int(self.settings["chaos"])):
                return None, ""
            return self.random.choice((("lost", ""), ("late", str(self.random.randrange(200))), ("hangup", ""), ("status", "503"),
                                       ("half", "")))

    def serve_one(self, connection, method, path, headers, body):
        with self.lock:
            self.counts["requests"] += 1
        time.sleep(int(self.settings["delay_ms"]) / 1000)
        if self.refuses_keys(connection, method, path, headers):
            return None
        fault, arg = self.choose()
        if fault == "status":
            code, _, after = arg.partition(":")
            return self.plain(connection, code, [f"Retry-After: {after}"] if after else [])
        if fault == "xml":
            return self.misbehave(connection, fault, arg, 0, 0)
        if fault == "hangup":
            raise http_server.Hangup
        if fault == "late":
            threading.Timer(int(arg) / 1000, self.act, (method, path, headers, body)).start()
            raise http_server.Hangup
        if fault == "hold":
            self.released.wait(int(arg) / 1000)
        status, extra, answer = self.act(method, path, headers, body)
        if fault == "lost":
            raise http_server.Hangup
        length = [] if status == 204 else [f"Content-Length: {len(answer)}"]
        if fault == "half":
            answer = answer[:len(answer) // 2]
        self.answer(connection, status, extra + length, answer, version=False)
        if fault == "half":
            raise http_server.Hangup


if __name__ == "__main__":
    http_server.run(Store)
