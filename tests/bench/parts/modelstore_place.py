# SPDX-License-Identifier: Apache-2.0
"""A bellows-modeld with models for a benchmark, files that the page cache has or has not, and programs of
torch that ask."""
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile

import cluster

PYTHON = "/usr/bin/python3"  # Debian's own: another one in PATH lacks its packages
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICK_LARGE = 64 << 20
GIGABYTE = 1 << 30


SHARED_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"


class SharedHugePages:
    """The kernel gives shared memory huge pages where a program asks for them, as bellows-modeld.service has it.
    The setting is put back. Use as a context."""

    def __init__(self):
        with open(SHARED_HUGE_PAGES, encoding="ascii") as stream:
            self.before = re.search(r"\[(\w+)\]", stream.read())[1]

    def __enter__(self):
        self.set("advise")

    def __exit__(self, *_):
        self.set(self.before)

    @staticmethod
    def set(word):
        with open(SHARED_HUGE_PAGES, "w", encoding="ascii") as stream:
            stream.write(word)


def why_no_huge_pages():
    """None: this program can have the kernel make them."""
    try:
        with SharedHugePages():
            return None
    except OSError as error:
        return str(error)


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


def available_memory():
    with open("/proc/meminfo", encoding="ascii") as stream:
        return next(1024 * int(line.split()[1]) for line in stream if line.startswith("MemAvailable:"))


def large_size(options):
    """(bytes of the large model, why it is not 4 GB). There is one in the store, one in a program, and two
    files of it in the page cache, lest the other side pay for the disk."""
    if options.quick:
        return QUICK_LARGE, "only a few samples are taken"
    memory, disk = available_memory(), shutil.disk_usage(options.builddir).free
    if memory < 17 * GIGABYTE:
        return GIGABYTE, f"it needs 17 GB of free memory, and there are {memory / GIGABYTE:.1f}"
    if disk < 14 * GIGABYTE:
        return GIGABYTE, f"it needs 14 GB in {options.builddir}, and there are {disk / GIGABYTE:.1f}"
    return 4 * GIGABYTE, None


class Asker:
    """A program of answer.py that waits for lines. Use as a context."""

    def __init__(self, options, store, what, **environment):
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            command_of("serve", what), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**environment_of(options, store), **environment})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self):
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise RuntimeError("a program that asks models has ended")
        return [float(word) for word in line.split()]

    def ask(self, line):
        self.tell(line)
        return self.heard()


def command_of(mode, what, *arguments):
    return [PYTHON, f"{HERE}/answer.py", mode, json.dumps(what), *arguments]


def environment_of(options, store=None):
    socket_of = {"BELLOWS_MODEL_SOCKET": store.socket} if store else {}
    return {**os.environ, **socket_of, "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{os.path.dirname(os.path.dirname(HERE))}/python",
            "BELLOWS_MODEL_LIBRARY": f"{options.builddir}/modelstore/.libs/libbellows_model.so.0"}


def made_network(options, directory, name, size):
    """A network's files, as answer.py is told of them."""
    what = {"network": name, "size": size, "store": name, "pt": f"{directory}/{name}.pt",
            "safetensors": f"{directory}/{name}.safetensors"}
    subprocess.run(command_of("make", what), check=True, timeout=300, env=environment_of(options))
    return what


def why_no_torch():
    """None: there is torch."""
    done = subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True, timeout=120)
    return None if done.returncode == 0 else f"{PYTHON} has no torch: python3-torch"
