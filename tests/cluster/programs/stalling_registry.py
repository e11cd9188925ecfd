#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A registry with one image, an OCI layout, which sends half of the blob that it was told last and then nothing:
stalling_registry.py LAYOUT PORT LOG. It sends all once the file LOG.go is there."""
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import json

layout, port, log = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
manifest = json.loads((layout / "index.json").read_text())["manifests"][0]
blobs = layout / "blobs/sha256"
last = json.loads((blobs / manifest["digest"][7:]).read_text())["layers"][-1]["digest"][7:]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        with log.open("a") as out:
            out.write(f"{self.path}\n")
        digest = self.path.rpartition("/")[2].removeprefix("sha256:")
        if "/manifests/" in self.path:
            digest = manifest["digest"][7:]
        path = blobs / digest
        data = path.read_bytes() if path.is_file() else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", manifest["mediaType"] if "/manifests/" in self.path else "application/octet-stream")
        self.end_headers()
        if self.command == "HEAD":
            return
        if digest != last or Path(f"{log}.go").exists():
            self.wfile.write(data)
            return
        self.wfile.write(data[:len(data) // 2])
        self.wfile.flush()
        while not Path(f"{log}.go").exists():
            time.sleep(0.1)

    do_HEAD = do_GET


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
