# SPDX-License-Identifier: Apache-2.0
"""Reads handwritten digits, over HTTP: serve.py --data digits.csv.gz --model digits.pt --port PORT

GET /17 is what it takes sample 17 of the data for, POST / the same for the 64 numbers in the body. An
ordinary server, in which nothing knows about Bellows. Without a model file it trains one first.
"""

import argparse
import gzip
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn


def read(path):
    with gzip.open(path, "rt") as file:
        rows = torch.tensor([[float(word) for word in line.split(",")] for line in file])
    return rows[:, :64] / 16, rows[:, 64].long()


def network():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(images, digits, path):
    torch.manual_seed(1)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), digits).backward()
        optimizer.step()
    # Several may be doing so at once.
    mine = f"{path}.{os.getpid()}"
    torch.save(net.state_dict(), mine)
    os.replace(mine, path)


class Reader(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def read_digit(self, image):
        with torch.no_grad():
            self.answer(200, {"digit": int(self.server.net(image).argmax())})

    def do_GET(self):
        number = self.path[1:]
        if not number.isdecimal() or int(number) >= len(self.server.images):
            return self.answer(404, {"error": "no such sample"})
        return self.read_digit(self.server.images[int(number)])

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        try:
            image = torch.tensor(json.loads(self.rfile.read(min(length, 65536))), dtype=torch.float)
        except (ValueError, TypeError):
            return self.answer(400, {"error": "the body is no list of numbers"})
        if image.shape != (64,):
            return self.answer(400, {"error": "an image has 64 numbers, from 0 to 1"})
        return self.read_digit(image)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, digits = read(options.data)
    if not os.path.exists(options.model):
        train(images, digits, options.model)
    server = Server(("", options.port), Reader)
    server.images = images
    server.net = network()
    server.net.load_state_dict(torch.load(options.model))
    server.serve_forever()


if __name__ == "__main__":
    main()
