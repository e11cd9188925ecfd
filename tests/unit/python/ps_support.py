# SPDX-License-Identifier: Apache-2.0
"""A bellows-ps, and programs that are its learners, for the tests of bellows.ps."""

import multiprocessing
import os
import signal
import subprocess
from pathlib import Path

from support import PACKAGE, SECONDS, TestCase

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BELLOWS_BUILDDIR") or os.path.join(HERE, "../../../build")


class Server:
    """A bellows-ps at a socket. Ends with this process."""

    def __init__(self, test, name, *options):
        self.socket = test.path(name)
        self._log = open(f"{self.socket}.log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                # Whatever ends the test.
                "setpriv",
                "--pdeathsig=KILL",
                os.path.join(BUILD, "paramserver/bellows-ps"),
                f"--socket={self.socket}",
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        self.pid = self._process.pid
        test.eventually(lambda: "is ready" in self.said())

    def said(self):
        self._log.seek(0)
        return self._log.read()

    def end(self):
        self._process.terminate()
        self._process.wait(timeout=SECONDS)

    def close(self):
        self._process.kill()
        self._process.wait(timeout=SECONDS)
        self._log.close()


def is_stopped(pid):
    """Whether all threads of a process have stopped, which takes them a moment."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)


def server_of(pid):
    """The process that applies gradients, a child of bellows-ps; None: there is none now."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        children = file.read().split()
    return int(children[0]) if children else None


class ServerTestCase(TestCase):
    def serve(self, *options, name="socket"):
        """Starts a server, whose socket is in the environment."""
        server = Server(self, name, *options)
        self.addCleanup(server.close)
        before = os.environ.get("BELLOWS_PS_SOCKET")
        os.environ["BELLOWS_PS_SOCKET"] = server.socket
        self.addCleanup(
            lambda: os.environ.pop("BELLOWS_PS_SOCKET")
            if before is None
            else os.environ.update(BELLOWS_PS_SOCKET=before)
        )
        return server


#: For learners whose arithmetic is compared: torch joins multiplications and additions otherwise,
#: and rounds less often.
ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([PACKAGE, HERE]),
}


def kill_server(pid):
    """Kills the one that applies gradients, once there is one."""
    child = server_of(pid)
    while child is None:
        child = server_of(pid)
    os.kill(child, signal.SIGKILL)


def in_processes(number, work):
    """What work(rank, barrier) gives in each of so many processes, in their order."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(number, timeout=SECONDS)
    processes = []
    for rank in range(number):
        receiver, sender = context.Pipe(duplex=False)

        def run(rank=rank, sender=sender):
            sender.send(work(rank, barrier))

        processes.append((context.Process(target=run, daemon=True), receiver))
        processes[-1][0].start()
        sender.close()
    try:
        return [_received(receiver) for _, receiver in processes]
    finally:
        for process, _ in processes:
            process.kill()
            process.join()


def _received(receiver):
    if not receiver.poll(SECONDS):
        raise AssertionError("a process hangs")
    return receiver.recv()
