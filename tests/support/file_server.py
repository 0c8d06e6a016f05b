#!/usr/bin/env python3
"""Serves the files of a folder on 127.0.0.1, in good ways and bad, for tests of downloads.

  python3 file_server.py FOLDER     prints its port, ends with standard input

  /range/F     the file; parts of it where asked        /whole/F   always all of it
  /cut/F       at most 60,000 bytes, then hangs up      /once/F    the same, the first time only
  /slow/F      20,000 bytes each tenth of a second      /stall/F   half of it, then nothing
  /long/F      a byte too many                          /away/F    sends the reader to /range/F
  /refuse/F    503                                      /none/F    404
  /log         "GET /range/F bytes=10-", one a line
"""
import http.server
import pathlib
import sys
import threading
import time

folder = pathlib.Path(sys.argv[1])
log = []
seen = set()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), "Connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def do_GET(self):
        _, way, *rest = self.path.split("/", 2)
        if way == "log":
            return self.answer(200, "".join(log).encode())
        wanted = self.headers.get("Range", "")
        log.append(f"GET {self.path} {wanted}\n")
        path = folder / rest[0] if rest else folder
        if way == "refuse":
            return self.answer(503, b"come back later")
        if way == "none" or not path.is_file():
            return self.answer(404, b"<html>not here</html>")
        if way == "away":
            return self.answer(302, Location=f"/range/{rest[0]}")
        content = path.read_bytes()
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and way != "whole" else 0
        if begin >= len(content):
            return self.answer(416)
        body = content[begin:] + (b"!" if way == "long" else b"")
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.close_connection = True
        if way == "cut" or (way == "once" and self.path not in seen):
            seen.add(self.path)
            body = body[:60_000]
        step, pause = (20_000, 0.1) if way == "slow" else (len(body), 0)
        if way == "stall":
            body = body[: len(body) // 2]
        for at in range(0, len(body), step):
            self.wfile.write(body[at : at + step])
            time.sleep(pause)
        if way == "stall":
            time.sleep(60)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # readers that hang up are what is tested


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
