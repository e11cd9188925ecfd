# SPDX-License-Identifier: Apache-2.0
"""Objects whose methods a pool's members serve."""

import math
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Optional

import grpc

from . import agent
from .methods import methods_of
from .place import SERVER_OPTIONS, own_directory, server_credentials
from .service import Service

_TICK_S = 1.0
# Callers that have not heard yet that a member drains are told when they ask; then they are quiet.
_QUIET_S = 1.0
# From SIGTERM to SIGKILL Slurm lets 30 s pass (KillWait). The agent sends it when the time to drain is over.
_TERMINATED_S = 25


class ElasticObject:
    """A class whose public methods are served by each member of a pool.

        class Index(bellows.pool.ElasticObject):
            @bellows.pool.idempotent
            def look_up(self, word):
                return self.places[word]

        Index().serve()

    Methods run in several threads at once. What they take and return is None, bool, numbers, strings,
    bytes, lists, dicts and arrays of numpy; a tuple arrives as a list. A generator streams its items.
    """

    def on_drain(self, seconds: int) -> None:
        """Called once when this member must go, in a thread of its own, beside calls that still run.

        After so many seconds they are ended.
        """

    def change_pool_size(self) -> int:
        """Asked each second for the members that the pool should have more, or fewer if negative."""
        return 0

    def metric(self, name: str, value: float) -> None:
        """A figure by which the pool's policy may choose its size; nothing outside of a member."""
        if agent.in_member():
            agent.metric(name, value)

    def serve(self, port: int = 0, threads: int = 16, limit: Optional[int] = None) -> None:
        """Serves until the member is told to end, and returns when its calls are done.

        port: 0 for one that is free. threads: calls that run at once. limit: calls that run or wait for
        a thread, by default 4 for each thread. The pool's directory is $BELLOWS_POOL.
        Unavailable: its key can't be read; OSError: the port is taken.
        """
        serving = Serving(self, port, threads, limit or 4 * threads)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: serving.drain(_TERMINATED_S))
        serving.run()


class Serving:
    """A server at its port, from its first call to its last."""

    def __init__(self, target: ElasticObject, port: int, threads: int, limit: int) -> None:
        self._target = target
        self._service = Service(
            target,
            methods_of(type(target), ElasticObject),
            # What the agent is to the keeper; a program that has no agent answers everybody.
            os.environ.get("BELLOWS_POOL_INCARNATION", ""),
            threads,
            limit,
        )
        # An Event's lock could be held by the very thread that a signal interrupts.
        self._told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._seconds = 0
        self._deadline = math.inf
        self._server = grpc.server(
            self._service.threads, handlers=[self._service], options=SERVER_OPTIONS
        )
        credentials = server_credentials(own_directory())
        try:
            self.port = self._server.add_secure_port(f"[::]:{port}", credentials)
        except RuntimeError as error:
            raise OSError(f"port {port} can't be had: {error}") from error
        self._server.start()

    def drain(self, seconds: int) -> None:
        """Takes no more calls, and ends those that still run after so many seconds."""
        self._seconds = seconds
        self._deadline = min(self._deadline, time.monotonic() + seconds)
        self._service.draining = True
        os.eventfd_write(self._told, 1)

    def run(self) -> None:
        watch = None
        if agent.in_member():
            agent.listen(self.port)
            watch = agent.watch()
            threading.Thread(target=self._obey, args=(watch,), daemon=True).start()
            agent.ready()
        try:
            while not select.select([self._told], [], [], _TICK_S)[0]:
                self._tell()
            self._empty()
        finally:
            self._server.stop(0).wait(5)
            self._service.close()
            if watch is not None:
                watch.close()

    def _obey(self, watch: socket.socket) -> None:
        for order in agent.orders(watch):
            if order.drain_s is not None:
                self.drain(order.drain_s)
                return

    def _tell(self) -> None:
        if not agent.in_member():
            return
        try:
            agent.metric("bellows_calls", self._service.calls)
            change = self._target.change_pool_size()
            # A vote of nothing would be a wish to stay.
            if change:
                agent.vote(change)
        except Exception:  # What the object says of itself is worth less than its calls.
            traceback.print_exc()

    def _empty(self) -> None:
        hook = threading.Thread(target=self._target.on_drain, args=(self._seconds,), daemon=True)
        hook.start()
        quiet_from = time.monotonic()
        while time.monotonic() < self._deadline:
            since = time.monotonic() - max(quiet_from, self._service.asked)
            if self._service.calls == 0 and since >= _QUIET_S and not hook.is_alive():
                return
            time.sleep(0.02)
        print(
            f"bellows.pool: {self._service.calls} calls are ended, since the time to drain is over",
            file=sys.stderr,
        )
