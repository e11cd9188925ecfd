# SPDX-License-Identifier: Apache-2.0
"""For the tests of bellows.pool: pools without Slurm, whose keeper and agents are of this process."""

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from bellows.pool import members, place
from support import PACKAGE, SECONDS, TestCase

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "pool_member.py")


def make_key(directory):
    """The key of a new pool, as `bellows pool create` makes it."""
    os.makedirs(directory, mode=0o700)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "30"]
        + ["-subj", "/CN=bellows-pool", "-addext", "subjectAltName=DNS:bellows-pool"]
        + ["-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem"],
        check=True,
        capture_output=True,
    )


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def message(listed):
    """Members of pool.proto."""
    out = b"\x08" + varint(7)
    for one in listed:
        address = one.address.encode()
        body = b"\x08" + varint(one.job) + b"\x12" + varint(len(address)) + address
        body += b"\x18" + varint(one.incarnation) + b"\x20" + varint(one.state)
        body += b"\x2a\x02n1"  # The node.
        out += b"\x12" + varint(len(body)) + body
    return out


class Keeper(grpc.GenericRpcHandler):
    """Says who the members are."""

    def __init__(self, directory):
        self._directory = directory
        self._changed = threading.Condition()
        self._members = []
        self.start()

    def start(self):
        self._ended = False
        self._threads = ThreadPoolExecutor(32)
        self._server = grpc.server(self._threads, handlers=[self])
        port = self._server.add_secure_port("127.0.0.1:0", place.server_credentials(self._directory))
        self._server.start()
        with open(f"{self._directory}/keeper.new", "w", encoding="utf-8") as file:
            file.write(f'{{"host": "127.0.0.1", "port": {port}, "job": 1}}')
        os.rename(f"{self._directory}/keeper.new", f"{self._directory}/keeper.json")

    def service(self, details):
        known = details.method == "/bellows.pool.Keeper/Watch"
        return grpc.unary_stream_rpc_method_handler(self._watch) if known else None

    def _watch(self, _, context):
        while context.is_active() and not self._ended:
            with self._changed:
                said = list(self._members)
            yield message(said)
            with self._changed:
                self._changed.wait_for(lambda: said != self._members or self._ended, 0.5)

    def say(self, *listed):
        with self._changed:
            self._members = list(listed)
            self._changed.notify_all()

    def end(self):
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._server.stop(0).wait()
        self._threads.shutdown()


class Agent:
    """What runs beside a member's program: notes what it says, and gives orders."""

    def __init__(self, path):
        self.lines = []
        self._watching = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(path)
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            line = connection.recv(512).decode()
            if line == "watch":
                self._watching.append(connection)
            else:
                connection.close()
            self.lines.append(line)

    def order(self, line):
        for connection in self._watching:
            connection.send(line.encode())

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for connection in self._watching:
            connection.close()


class Process:
    """A member: a program in a process of its own, with an agent."""

    def __init__(self, test, directory, job, *command, **environment):
        self.job = job
        self.incarnation = 1000 + job
        path = test.path(f"agent-{job}")
        self.agent = Agent(path)
        self._log = open(test.path(f"member-{job}.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", *(command or (sys.executable, PROGRAM))],
            stdout=self._log,
            stderr=self._log,
            env={
                **os.environ,
                "PYTHONPATH": PACKAGE,
                "BELLOWS_POOL": directory,
                "BELLOWS_POOL_SOCKET": path,
                "BELLOWS_POOL_INCARNATION": str(self.incarnation),
                "LEDGER": test.path("ledger"),
                **environment,
            },
        )

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"a member ended: {self.said()}")
        return "ready" in self.agent.lines

    @property
    def port(self):
        return next(int(line.split()[1]) for line in self.agent.lines if line.startswith("listen "))

    def as_member(self, state=members.READY):
        return members.Member(self.job, f"127.0.0.1:{self.port}", self.incarnation, state)

    def said(self):
        self._log.seek(0)
        return self._log.read()

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=SECONDS)

    def wait(self):
        return self.process.wait(timeout=SECONDS)

    def close(self):
        self.kill()
        self.agent.close()
        self._log.close()


class PoolTestCase(TestCase):
    def setUp(self):
        super().setUp()
        self.pool = self.path("pools/p")
        make_key(self.pool)
        self.keeper = Keeper(self.pool)
        self.addCleanup(self.keeper.end)
        self._jobs = 0

    def start(self, *command, **environment):
        """A member, which is not ready yet."""
        self._jobs += 1
        process = Process(self, self.pool, self._jobs, *command, **environment)
        self.addCleanup(process.close)
        return process

    def members(self, count, **environment):
        """So many members that are ready, and the keeper says so."""
        started = [self.start(**environment) for _ in range(count)]
        for one in started:
            self.eventually(one.is_ready)
        self.keeper.say(*(one.as_member() for one in started))
        return started

    def ledger(self):
        try:
            with open(self.path("ledger"), encoding="utf-8") as file:
                return file.read().split()
        except FileNotFoundError:
            return []
