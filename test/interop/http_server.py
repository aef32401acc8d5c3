#!/usr/bin/env python3
"""A web server of one object that misbehaves when told to.

    http_server.py --control PATH [--listen HOST:PORT] [--file PATH] [--tls CERTIFICATE KEY] [--set KEY=VALUE]...

The object is a file, or each of its 8-byte words is its own offset (little endian). The control socket takes one
line per command and answers each with one line, "ok ..." or "error: ...":

    set KEY=VALUE ...   (_ stands for a space) size, etag, modified (of the object; "": none), auth (the Authorization that is wanted),
                        path (of the object), s3=ACCESS:SECRET:REGION[:TOKEN] (requests are signed for S3 with these; others
                        are refused as S3 does, and violations; "": not), expired (a TOKEN of S3: 400 ExpiredToken, which is
                        counted), clock (by so many seconds it is ahead; "": answers have no Date), delay_ms (before each answer),
                        match=0 (If-Match is ignored)
    fault KIND [N [ARG]] the next N requests (1; -1: all) get
                          status ARG       that status, ARG: CODE or CODE:RETRY-AFTER
                          redirect ARG     302 to that URL
                          xml ARG          an error of S3, ARG: STATUS:CODE:MESSAGE[:REGION], _ for spaces in MESSAGE
                          whole            200 and the whole object
                          shift            the range behind the one that was asked for
                          unranged         206 without Content-Range
                          truncate ARG     ARG bytes of the body, then the end of the connection
                          short            a body of fewer bytes, by a Content-Length that agrees with it
                          long             a chunked body of more bytes than were asked for
                          less             a chunked body of fewer bytes
                          drip ARG         a byte of the body each ARG ms
                          silence          no answer; the connection stays open
                          hangup           the end of the connection
                          garbage          bytes that are no HTTP
                          flood            headers without end
                          number           a Content-Length that is no number
                          gzip             Content-Encoding: gzip
                          unversioned      neither ETag nor Last-Modified
    fault none          all forgotten
    stats               numbers as KEY=VALUE; `violations` counts what a client must not do
    where               the port
    down, up            connections are closed, and nobody listens; listening again
    quit
"""

import argparse
import os
import re
import signal
import socket
import ssl
import struct
import sys
import threading
import time
from email.utils import formatdate
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True  # the tree stays clean
import s3_signature  # noqa: E402


class Hangup(Exception):
    pass


class Server:
    def __init__(self, args):
        self.args = args
        self.host, _, self.port = args.listen.rpartition(":")
        self.port = int(self.port)
        self.lock = threading.Lock()
        self.faults = []
        self.counts = dict(requests=0, connections=0, open=0, body_bytes=0, violations=0, secrets=0, faults=0, expired=0)
        self.last_violation = ""
        self.settings = dict(size="4194304", etag='"v1"', modified="Mon, 01 Jun 2026 00:00:00 GMT", auth="", path="/disk.img", s3="",
                             expired="", clock="", delay_ms="0", match="1")
        self.change(args.set)
        self.sockets = set()
        self.listener = None
        self.tls = None
        if args.tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*args.tls)

    # ---- the object ----

    def size(self):
        return os.path.getsize(self.args.file) if self.args.file else int(self.settings["size"])

    def content(self, first, nr):
        if self.args.file:
            with open(self.args.file, "rb") as f:
                f.seek(first)
                return f.read(nr)
        start, end = first // 8, (first + nr + 7) // 8
        words = struct.pack(f"<{end - start}Q", *range(start * 8, end * 8, 8))
        return words[first - start * 8:][:nr]

    # ---- one request ----

    def take_fault(self):
        with self.lock:
            if not self.faults:
                return None, ""
            fault = self.faults[0]
            if fault[1] > 0:
                fault[1] -= 1
                if fault[1] == 0:
                    self.faults.pop(0)
            self.counts["faults"] += 1
            return fault[0], fault[2]

    def violation(self, words):
        with self.lock:
            self.counts["violations"] += 1
            self.last_violation = words.replace(" ", "_")

    def answer(self, connection, status, headers, body=b"", version=True):
        s = self.settings
        lines = [f"HTTP/1.1 {status} x"] + headers
        if s["clock"]:
            lines.append(f"Date: {formatdate(time.time() + int(s['clock']), usegmt=True)}")
        if version and s["etag"]:
            lines.append(f"ETag: {s['etag']}")
        if version and s["modified"]:
            lines.append(f"Last-Modified: {s['modified']}")
        connection.sendall("\r\n".join(lines + ["", ""]).encode() + body)
        with self.lock:
            self.counts["body_bytes"] += len(body)

    def plain(self, connection, status, extra=()):
        self.answer(connection, status, ["Content-Length: 0", *extra], version=False)

    def s3_error(self, connection, status, code, message, region=""):
        """Nobody reads the whole of a long message."""
        document = (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{escape(message)}</Message>'
                    f"<RequestId>tx1</RequestId></Error>").encode()
        extra = [f"x-amz-bucket-region: {region}"] if region else []
        self.answer(connection, status, ["Content-Type: application/xml", f"Content-Length: {len(document)}", *extra], document,
                    version=False)

    def refuses_keys(self, connection, method, path, headers):
        """True: that was the answer."""
        if self.settings["expired"] and headers.get("x-amz-security-token") == self.settings["expired"]:
            with self.lock:
                self.counts["expired"] += 1
            self.s3_error(connection, 400, "ExpiredToken", "The provided token has expired.")
            return True
        if not self.settings["s3"]:
            return False
        access, secret, region, token = (self.settings["s3"].split(":") + [""])[:4]
        refusal = s3_signature.refusal(method, path, headers, {access: secret}, region, token, int(self.settings["clock"] or 0))
        if not refusal:
            return False
        if refusal[0] != "RequestTimeTooSkewed":
            self.violation(" ".join(refusal))
        self.s3_error(connection, 403, *refusal)
        return True

    def chunked(self, connection, head, body):
        self.answer(connection, 206, [head, "Transfer-Encoding: chunked"])
        connection.sendall(b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")

    def misbehave(self, connection, fault, arg, first, last):
        """True: that was the answer."""
        size = self.size()
        nr = last - first + 1
        body = self.content(first, nr)
        head = f"Content-Range: bytes {first}-{last}/{size}"
        length = f"Content-Length: {nr}"
        if fault == "status":
            code, _, after = arg.partition(":")
            self.plain(connection, code, [f"Retry-After: {after}"] if after else [])
        elif fault == "xml":
            status, code, message, region = (arg.split(":") + [""])[:4]
            self.s3_error(connection, status, code, message.replace("_", " "), region)
        elif fault == "redirect":
            self.plain(connection, 302, [f"Location: {arg}"])
        elif fault == "whole":
            self.answer(connection, 200, [f"Content-Length: {size}"], self.content(0, size))
        elif fault == "shift":
            self.answer(connection, 206, [f"Content-Range: bytes {first + 512}-{last + 512}/{size}", length],
                        self.content(first + 512, nr))
        elif fault == "unranged":
            self.answer(connection, 206, [length], body)
        elif fault == "truncate":
            self.answer(connection, 206, [head, length], body[:int(arg)])
            raise Hangup
        elif fault == "short":
            self.answer(connection, 206, [head, f"Content-Length: {nr // 2}"], body[:nr // 2])
        elif fault == "long":
            self.chunked(connection, head, body + b"more")
        elif fault == "less":
            self.chunked(connection, head, body[:nr // 2])
        elif fault == "drip":
            self.answer(connection, 206, [head, length])
            for i in range(nr):
                connection.sendall(body[i:i + 1])
                time.sleep(int(arg) / 1000)
        elif fault == "silence":
            connection.recv(1)
            raise Hangup
        elif fault == "hangup":
            raise Hangup
        elif fault == "garbage":
            connection.sendall(b"\x16\x03\x01 this is no answer of a web server\r\n\r\n" * 4)
            raise Hangup
        elif fault == "flood":
            connection.sendall(b"HTTP/1.1 206 x\r\n")
            for i in range(1000000):
                connection.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
            raise Hangup
        elif fault == "number":
            self.answer(connection, 206, [head, "Content-Length: 12monkeys"], body)
            raise Hangup
        elif fault == "gzip":
            self.answer(connection, 206, [head, length, "Content-Encoding: gzip"], body)
        elif fault == "unversioned":
            self.answer(connection, 206, [head, length], body, version=False)
        else:
            raise ValueError(fault)

    def condition_holds(self, headers):
        s = self.settings
        if s["match"] == "0":
            return True
        if "if-match" in headers:
            return headers["if-match"] == s["etag"] and not s["etag"].startswith("W/")
        if "if-unmodified-since" in headers:
            return headers["if-unmodified-since"] == s["modified"]
        return True

    def serve_one(self, connection, method, path, headers, body):
        with self.lock:
            self.counts["requests"] += 1
            self.counts["secrets"] += "authorization" in headers or "x-secret" in headers
        time.sleep(int(self.settings["delay_ms"]) / 1000)
        size = self.size()
        want = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if method != "GET" or not want or body:
            self.violation(f"{method} {headers.get('range')}")
            return self.plain(connection, 400)
        first, last = int(want[1]), int(want[2])
        if last >= size > first and last > 0:
            self.violation(f"range {first}-{last} of {size}")
        if self.refuses_keys(connection, method, path, headers):
            return None
        fault, arg = self.take_fault()
        if fault:
            return self.misbehave(connection, fault, arg, first, min(last, size - 1))
        if self.settings["auth"] and headers.get("authorization") != self.settings["auth"]:
            return self.plain(connection, 401, ['WWW-Authenticate: Basic realm="x"'])
        if path.partition("?")[0] != self.settings["path"]:
            return self.plain(connection, 404)
        if not self.condition_holds(headers):
            return self.plain(connection, 412)
        if first >= size:
            return self.plain(connection, 416, [f"Content-Range: bytes */{size}"])
        last = min(last, size - 1)
        self.answer(connection, 206, [f"Content-Range: bytes {first}-{last}/{size}", f"Content-Length: {last - first + 1}"],
                    self.content(first, last - first + 1))

    # ---- connections ----

    def session(self, connection):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with self.lock:
                self.sockets.add(connection)
            stream = connection.makefile("rb")
            while True:
                line = stream.readline(65536).decode("latin-1").split()
                if len(line) != 3:
                    break
                headers = {}
                while True:
                    field = stream.readline(65536).decode("latin-1").strip()
                    if not field:
                        break
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                if headers.get("expect") == "100-continue":
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                nr = int(headers.get("content-length", 0))
                body = stream.read(nr)
                if len(body) < nr:
                    break  # a request that was cut off is none
                self.serve_one(connection, line[0], line[1], headers, body)
        except (Hangup, OSError):
            pass
        finally:
            with self.lock:
                self.sockets.discard(connection)
                self.counts["open"] -= 1
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.counts["connections"] += 1
                self.counts["open"] += 1
            threading.Thread(target=self.session, args=(connection,), daemon=True).start()

    def up(self):
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.host, self.port))
        listener.listen(256)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def down(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            sockets = list(self.sockets)
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    # ---- control ----

    def change(self, pairs):
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key not in self.settings:
                raise ValueError(f"no setting is called {key!r}")
            self.settings[key] = value.replace("_", " ")

    def stats(self):
        with self.lock:
            numbers = dict(self.counts, left=sum(max(f[1], 0) for f in self.faults))
        text = " ".join(f"{key}={value}" for key, value in numbers.items())
        return text + (f" last_violation={self.last_violation}" if self.last_violation else "")

    def command(self, line):
        word, _, rest = line.partition(" ")
        if word == "set":
            self.change(rest.split(" "))
        elif word == "fault" and rest == "none":
            with self.lock:
                self.faults = []
        elif word == "fault":
            kind, nr, arg = (rest.split(" ", 2) + ["1", ""])[:3] if rest.count(" ") < 2 else rest.split(" ", 2)
            with self.lock:
                self.faults.append([kind, int(nr), arg])
        elif word == "stats":
            return self.stats()
        elif word == "where":
            return str(self.port)
        elif word in ("down", "up"):
            getattr(self, word)()
        elif word == "quit":
            os._exit(0)
        else:
            raise ValueError(f"no command is called {word!r}")
        return ""

    def control(self, connection):
        with connection, connection.makefile("rw") as stream:
            for line in stream:
                try:
                    answer = "ok " + self.command(line.strip())
                except (ValueError, KeyError, OSError) as error:
                    answer = f"error: {error}"
                stream.write(answer.rstrip() + "\n")
                stream.flush()

    def run(self):
        self.up()
        if self.args.port_file:
            with open(self.args.port_file, "w") as f:
                f.write(f"{self.port}\n")
        if not self.args.control:
            signal.pause()
        if os.path.exists(self.args.control):
            os.unlink(self.args.control)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.args.control)
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.control, args=(connection,), daemon=True).start()


def run(kind):
    parser = argparse.ArgumentParser(description="a web server that misbehaves when told to")
    parser.add_argument("--control", metavar="PATH")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:0")
    parser.add_argument("--port-file", metavar="PATH", help="where the port is written to")
    parser.add_argument("--file", metavar="PATH")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        server = kind(args)
    except (ValueError, OSError) as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    server.run()


if __name__ == "__main__":
    run(Server)
