# SPDX-License-Identifier: Apache-2.0
"""A bellows-modeld with models for a benchmark, files that the page cache has or has not."""
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile

import cluster

QUICK_LARGE = 64 << 20


def write_model(path, size):
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    chunk = os.urandom(1 << 20)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for _ in range(size // len(chunk)):
            stream.write(chunk)


class Store:
    """A bellows-modeld with models, by name: new ones of a size, or files that there are. Use as a context."""

    def __init__(self, options, models, *more):
        self.options = options
        self.more = more
        self.dir = tempfile.mkdtemp(prefix="bench-models-", dir=options.builddir)
        self.socket = f"{self.dir}/models.sock"
        self.daemon = None
        self.models = models

    def __enter__(self):
        command = [f"{self.options.builddir}/modelstore/bellows-modeld", f"--run={self.dir}/run",
                   "--budget=8G", "--alone=1", f"--helpers={self.options.builddir}/modelstore",
                   f"--socket={self.socket},tenant=bench",
                   f"--socket={self.dir}/others.sock,tenant=others", *self.more]
        for name, what in self.models.items():
            if isinstance(what, int):
                write_model(f"{self.dir}/{name}", what)
                what = f"{self.dir}/{name}"
            command.append(f"--model={name}={what},tenant=bench")
        with open(f"{self.dir}/log", "wb") as log:
            # pylint: disable-next=consider-using-with
            self.daemon = subprocess.Popen(command, stderr=log)
        cluster.wait(lambda: os.path.exists(f"{self.dir}/run/control"), 10, "bellows-modeld")
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        self.daemon.wait(timeout=10)
        shutil.rmtree(self.dir, ignore_errors=True)

    def said(self, text):
        """How often the daemon has said so."""
        with open(f"{self.dir}/log", encoding="utf-8", errors="replace") as log:
            return log.read().count(text)

    def command(self, mode, model, *arguments):
        return [f"{self.options.builddir}/tests/bench/model_bench", mode, self.socket, model,
                *map(str, arguments)]

    def samples(self, mode, model, count):
        """Lists of numbers, one of each line; the first opens load it and don't count."""
        subprocess.run(self.command("open", model, 2), check=True, timeout=300,
                       stdout=subprocess.DEVNULL)
        done = subprocess.run(self.command(mode, model, count), check=True, timeout=300,
                              capture_output=True, text=True)
        return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def evict(store, model):
    """From memory; what control_wire.h calls a ControlRequest."""
    tenant, name = b"bench", model.encode()
    request = struct.pack("<8I64s256s1024s1024s", 1, 7, 0, len(tenant), len(name), 0, 0, 0, tenant, name,
                          b"", b"")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect(f"{store.dir}/run/control")
        control.send(request)
        if struct.unpack_from("<Ii", control.recv(1024))[1] != 0:
            raise RuntimeError(f"model {model} was not evicted")


def drop_cache(path):
    """Has the next reader of the file get it from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def raw_seconds(store, path):
    """Of a read of the file past the page cache."""
    done = subprocess.run([store.command("raw", "")[0], "raw", path], check=True, capture_output=True,
                          text=True, timeout=300)
    return float(done.stdout)
