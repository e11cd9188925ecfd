# SPDX-License-Identifier: Apache-2.0
"""The members that a caller knows, with a channel to each, and which of them is called next."""

import math
import random
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import grpc

from . import wire
from .members import READY, Member
from .methods import Method, from_description
from .place import open_channel

# Before a member that could not be reached or was full is asked again.
_AGAIN_S = 0.1
_LONGEST_AGAIN_S = 2.0
_PROBE_S = 5.0
_NEVER = math.inf

# A thread may have chosen a member just before it left.
_LEFT_S = 2.0


class Target:
    """One incarnation of a member, and how many calls of this caller it has."""

    def __init__(self, member: Member, credentials: grpc.ChannelCredentials) -> None:
        self.member = member
        self.metadata = ((wire.INCARNATION, str(member.incarnation)),)
        self._channel = open_channel(member.address, credentials)
        self.call = self._channel.unary_unary(wire.CALL)
        self.stream = self._channel.unary_stream(wire.STREAM)
        # An item for each call: appending and popping need no lock of ours, which threads that lose
        # the interpreter's while they hold it would make all others wait for.
        self.running: List[None] = []
        self.left_at = 0.0
        # Whether it has answered anything since it was last lost.
        self.reached = False
        # Reached, and nothing has gone wrong since.
        self.well = False
        self.not_before = 0.0
        self._pause_s = _AGAIN_S

    def works(self) -> None:
        """It has answered."""
        self.reached = True
        # One that drains still answers what it has.
        self.well = self.not_before != _NEVER
        self._pause_s = _AGAIN_S

    def fails(self, lost: bool) -> None:
        """Something else is asked for a while."""
        self.well = False
        if lost:
            self.reached = False
        if self.not_before == _NEVER:
            return
        self.not_before = time.monotonic() + self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, _LONGEST_AGAIN_S)

    def retire(self) -> None:
        """It drains, or its place has another one: this incarnation is never called again."""
        self.well = False
        self.not_before = _NEVER

    def probe(self, done: Callable[["Target", Optional[Dict[str, Method]]], None]) -> None:
        """Connects, so that no call waits for that, and asks what there is to call."""
        body = wire.pack([wire.DESCRIBE, [], {}])

        def answered(future: Any) -> None:
            try:
                description = from_description(wire.unpack_answer(future.result()))
            except Exception:  # Its next call shows what is wrong.
                done(self, None)
                return
            self.works()
            done(self, description)

        self.call.future(body, timeout=_PROBE_S, metadata=self.metadata).add_done_callback(answered)

    def close(self) -> None:
        self._channel.close()


class Targets:
    """Those that may be called: the ready ones, as the keeper said last."""

    def __init__(self, credentials: grpc.ChannelCredentials) -> None:
        self._credentials = credentials
        # Held for a few instructions, never in a call.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ready: List[Target] = []
        self._leaving: List[Target] = []
        self._closed = False
        self.methods: Optional[Dict[str, Method]] = None

    def update(self, members: List[Member]) -> None:
        """What the keeper says. Calls on those that are no longer ready go on."""
        ready = {member[:3]: member for member in members if member.state == READY and member.address}
        with self._lock:
            if self._closed:
                return
            known = {target.member[:3]: target for target in self._ready}
            new = [Target(ready[key], self._credentials) for key in ready.keys() - known.keys()]
            now = time.monotonic()
            for key in known.keys() - ready.keys():
                known[key].left_at = now
                self._leaving.append(known[key])
            self._ready = [known[key] for key in known.keys() & ready.keys()] + new
            gone = [one for one in self._leaving if not one.running and now - one.left_at > _LEFT_S]
            self._leaving = [one for one in self._leaving if one not in gone]
            lost = [target for target in self._ready if not target.reached and target.not_before <= now]
            self._changed.notify_all()
        for target in gone:
            target.close()
        for target in lost:
            target.probe(self._probed)

    def _probed(self, _: Target, description: Optional[Dict[str, Method]]) -> None:
        with self._lock:
            if description is not None:
                self.methods = {**(self.methods or {}), **description}
            self._changed.notify_all()

    def wait_for_methods(self, seconds: float) -> Optional[Dict[str, Method]]:
        """What there is to call, as soon as some member has said so."""
        with self._lock:
            self._changed.wait_for(lambda: self.methods is not None or self._closed, seconds)
            return self.methods

    def _better(self) -> Optional[Target]:
        """Of two random ones the one with fewer calls, if it is well; else the best of all."""
        ready = self._ready
        count = len(ready)
        if count == 0:
            return None
        first = int(random.random() * count)
        second = (first + 1 + int(random.random() * (count - 1))) % count
        better, other = ready[first], ready[second]
        if len(other.running) < len(better.running):
            better = other
        if better.well:
            return better
        now = time.monotonic()
        usable = [target for target in ready if target.not_before <= now]
        random.shuffle(usable)
        return min(usable, key=lambda target: (not target.reached, len(target.running)), default=None)

    def take(self, deadline: float) -> Optional[Target]:
        """A member to call, which counts as one more call of it. None: there was none until then."""
        target = self._better()
        while target is None:
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                return None
            with self._lock:
                # Those that may be asked again come without a notice.
                self._changed.wait(min(left, 0.05))
            target = self._better()
        target.running.append(None)
        return target

    @staticmethod
    def give(target: Target) -> None:
        """The call of `take` is over."""
        target.running.pop()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            targets = self._ready + self._leaving
            self._ready, self._leaving = [], []
            self._changed.notify_all()
        for target in targets:
            target.close()
