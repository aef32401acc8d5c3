#!/usr/bin/env python3
"""A store with the parts of S3's protocol that disks of objects need, which misbehaves when told to.

As http_server.py, but for these settings and faults; objects are in memory, of any bucket.

    set s3=..., delay_ms=MS, conditional=0 (conditions are ignored; new: but for If-None-Match; none: no ETag matches),
        bare=1 (an ETag with quotes does not match, as in Ceph 16.2), page=N (keys in a list, at most), list=NAME (how lists
        are written: LISTS below, or stuck: 50 times the first page), chaos=N (one request in N gets one of lost, late, hangup
        and 503), seed=N (of it)
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


def with_key(text, key):
    """A key more, of 5 bytes."""
    text = re.sub(r"<KeyCount>(\d+)", lambda count: f"<KeyCount>{int(count[1]) + 1}", text)
    return text.replace("</ListBucketResult>", f"<Contents><Key>{quote(key, safe='')}</Key><Size>5</Size></Contents></ListBucketResult>")


def without_last(text):
    text = re.sub(r"<KeyCount>(\d+)", lambda count: f"<KeyCount>{int(count[1]) - 1}", text)
    return re.sub(r"(.*)<Contents>.*?</Contents>", r"\1", text)


CONTENTS = "<Contents>"
# What becomes of the document of a list of the keys below a prefix.
LISTS = {
    "": lambda text, _: text,
    # The same list, in other words.
    "capital": lambda text, _: text.replace(">true<", ">True<").replace(">false<", ">False<"),
    "one": lambda text, _: text.replace(">true<", ">1<").replace(">false<", ">0<"),
    "space": lambda text, _: re.sub(r">(true|false|\d+)<", r">\n \1\t<", text),
    "attribute": lambda text, _: text.replace(CONTENTS, '<Contents a="&gt;" xmlns="x">'),
    "namespace": lambda text, _: re.sub(r"<(/?)(?=[A-Z])", r"<\1s3:", text).replace("s3:ListBucketResult>",
                                                                                   's3:ListBucketResult xmlns:s3="http://x/">', 1),
    "tags": lambda text, _: text.replace(CONTENTS, "<Contents\n>").replace("</Key>", "</Key >").replace("</Size>", "</Size><Owner/>"),
    "cdata": lambda text, _: re.sub(r"<(Key|NextContinuationToken)>(.*?)</", r"<\1><![CDATA[\2]]></", text),
    "comment": lambda text, _: text.replace(CONTENTS, "<!-- <Contents> --><Contents><?x?>").replace("%2F", "%<!-- -->2F"),
    "reference": lambda text, _: text.replace("%2F", "&#x25;&#50;F"),
    "nocount": lambda text, _: re.sub(r"<KeyCount>.*</KeyCount>", "", text),
    "more": lambda text, _: text.replace("</Size>", "</Size><Owner><ID>a</ID></Owner><ChecksumAlgorithm>SHA256</ChecksumAlgorithm>"
                                         "<KeyMarker/>").replace("</KeyCount>", "</KeyCount><StartAfter/><EncodingType>url</EncodingType>"),
    # None, or not all of one.
    "nothing": lambda text, _: "",
    "half": lambda text, _: text[:len(text) // 2],
    "unended": lambda text, _: text[:-len("</ListBucketResult>")],
    "html": lambda text, _: "<html><body>Welcome</body></html>",
    "error": lambda text, _: "<Error><Code>InternalError</Code></Error>",
    "doctype": lambda text, _: text.replace("<ListBucketResult>", "<!DOCTYPE x [<!ENTITY o 'o'>]><ListBucketResult>"),
    "maybe": lambda text, _: re.sub(r">(true|false)<", ">maybe<", text),
    "endless": lambda text, _: re.sub(r"<IsTruncated>.*</IsTruncated>", "", text),
    "notoken": lambda text, _: re.sub(r"<NextContinuationToken>.*</NextContinuationToken>", "", text),
    "last": lambda text, _: text.replace(">true<", ">false<"),
    "slash": lambda text, _: text.replace("<Key>", "<Key>%2F"),
    "small": lambda text, _: text.replace("Contents>", "contents>"),
    "count": lambda text, _: re.sub(r"<KeyCount>", "<KeyCount>1", text),
    "common": lambda text, prefix: text.replace(CONTENTS, f"<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes><Contents>", 1),
    "foreign": lambda text, prefix: with_key(text, prefix + "README"),
    "other": lambda text, prefix: with_key(text, "other/" + prefix),
    # A whole one, which lacks what was stored.
    "short": lambda text, _: without_last(text),
    "smaller": lambda text, _: LISTS["nocount"](LISTS["small"](text, _), _),
    "lastnotoken": lambda text, _: LISTS["notoken"](LISTS["last"](text, _), _),
    "wrapped": lambda text, _: LISTS["nocount"](re.sub(r"(<Contents>.*</Contents>)", r"<All>\1</All>", text), _),
    "sizezero": lambda text, _: re.sub(r"<Size>\d+</Size>", "<Size>0</Size>", text),
    "none": lambda text, _: "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
}


class Store(http_server.Server):
    def __init__(self, args):
        self.objects = {}
        self.released = threading.Event()
        self.random = random.Random(1)
        self.stuck = 0
        super().__init__(args)
        self.counts.update(gets=0, puts=0, deletes=0, lists=0, put_bytes=0)

    def change(self, pairs):
        self.settings.setdefault("conditional", "1")
        self.settings.setdefault("bare", "0")
        self.settings.setdefault("page", "1000")
        self.settings.setdefault("list", "")
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
        if self.settings["conditional"] == "none":
            return 412
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
        after = fields.get("continuation-token", "")
        if self.settings["list"] == "stuck":
            self.stuck += 1
            # Who asks again and again comes to an end: a test fails, and does not hang.
            after = "" if self.stuck < 50 else after
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        text = "".join(f"<Contents><Key>{quote(key.partition('/')[2], safe='')}</Key><ETag>&quot;x&quot;</ETag>"
                       f"<Size>{len(self.objects[key][0])}</Size></Contents>" for key in keys[:nr])
        more = "true" if len(keys) > nr else "false"
        token = f"<NextContinuationToken>{keys[nr - 1]}</NextContinuationToken>" if len(keys) > nr else ""
        text = (f'<?xml version="1.0"?><ListBucketResult><KeyCount>{len(keys[:nr])}</KeyCount><IsTruncated>{more}</IsTruncated>'
                f"{token}{text}</ListBucketResult>")
        write = LISTS.get(self.settings["list"], LISTS[""])
        return 200, [], write(text, fields.get("prefix", "")).encode()

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
