#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lends Debian's archive to a cluster without a way out: packages-proxy.py ADDRESS PORT CACHE

A proxy for HTTP that fetches with this machine's own settings and keeps what it got, since the suite
asks for the same package lists a score of times.
"""
import hashlib
import os
import shutil
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

address, port, cache = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        kept = os.path.join(cache, hashlib.sha256(self.path.encode()).hexdigest())
        try:
            if not self.path.startswith("http://"):
                raise ValueError("only http:// is passed on")
            if not os.path.exists(kept):
                new = f"{kept}.{os.getpid()}.{id(self)}"
                with urllib.request.urlopen(self.path, timeout=60) as answer, open(new, "wb") as file:
                    shutil.copyfileobj(answer, file)
                os.rename(new, kept)
        except urllib.error.HTTPError as error:
            self.send_error(error.code)
            return
        except (OSError, ValueError) as error:
            self.send_error(502, str(error))
            return
        with open(kept, "rb") as file:
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)

    def log_message(self, *_):
        pass


os.makedirs(cache, exist_ok=True)
ThreadingHTTPServer((address, port), Handler).serve_forever()
