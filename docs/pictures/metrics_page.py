#!/usr/bin/env python3
"""What the web page of ublkd asks, recorded and answered again.

metrics_page.py record ADDRESS SECONDS FOLDER   asks as the page does, one /page.json each second
metrics_page.py replay FOLDER PAGE              prints its port; the nth request of /page.json gets the nth answer; the
                                                page itself is in the folder PAGE
"""

import http.server
import json
import os
import sys
import time
import urllib.request

PAGE = "/page.json"
FILES = {"/": "page.html", "/page.js": "page.js"}
HEADERS = ("Content-Type", "Content-Security-Policy")


def record(address, seconds, folder):
    def ask(path):
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return {name: answer.headers[name] for name in HEADERS}, answer.read()

    os.makedirs(folder, exist_ok=True)
    headers = {}
    for path in (*FILES, PAGE):
        headers[path], _ = ask(path)
    with open(os.path.join(folder, "headers.json"), "w", encoding="utf-8") as file:
        json.dump(headers, file)
    begin = time.monotonic()
    with open(os.path.join(folder, "answers"), "wb", buffering=0) as file:
        for i in range(seconds):
            time.sleep(max(0, begin + i - time.monotonic()))
            file.write(ask(PAGE)[1] + b"\n")


def replay(folder, page):
    with open(os.path.join(folder, "headers.json"), encoding="utf-8") as file:
        headers = json.load(file)
    with open(os.path.join(folder, "answers"), "rb") as file:
        answers = file.read().splitlines()
    asked = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            nonlocal asked
            if self.path == PAGE:
                body = answers[min(asked, len(answers) - 1)]
                asked += 1
            elif self.path in FILES:
                with open(os.path.join(page, FILES[self.path]), "rb") as file:
                    body = file.read()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            for name, value in headers[self.path].items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"] and len(sys.argv) == 5:
        record(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["replay"] and len(sys.argv) == 4:
        replay(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
