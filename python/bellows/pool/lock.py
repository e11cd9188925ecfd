# SPDX-License-Identifier: Apache-2.0
"""Locks of a pool: a key with a lease, whose revision tells later holders from earlier ones."""

import threading
import time
from typing import Any, Dict, Optional

from .errors import InvalidError, LockLost, PoolError, Unavailable
from .gateway import ATTEMPT, Deadline, Gateway, Lost, NotSent, encode


class Lock:
    """Held by at most one at a time among those who ask etcd, as changes with `lock=` do. A holder
    that was stopped may believe that it holds it: outside etcd, compare `token`s, which grow."""

    def __init__(self, gateway: Gateway, key: str, ttl: int):
        if ttl < 2:
            raise InvalidError(f"a lock can't last for {ttl} s without an answer: at least 2")
        self.name = key.rsplit("/", 1)[1]
        self.token = 0  # of the last time that it was held
        self._gateway, self._key, self._ttl = gateway, encode(key.encode()), ttl
        self._lease, self._until = "", 0.0
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None

    @property
    def held(self) -> bool:
        """Whether it is certainly held at this moment by the clock of this machine."""
        return time.monotonic() < self._until

    def acquire(self, timeout: Optional[float] = None) -> bool:
        """Waits for it; False after `timeout` seconds (None: never), or the time of one
        more answer. Raises Unavailable."""
        if self._lease:
            raise InvalidError(f'"{self.name}" is held already by this Lock')
        deadline = Deadline(timeout)
        self._grant(deadline)
        try:
            while not self._try(deadline):
                if deadline.passed():
                    self.release()
                    return False
                self._wait(deadline)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Gives it back; if nobody answers, it ends with its lease."""
        self._until = 0.0
        self._stop.set()
        if self._thread:
            self._thread.join()
            self._thread = None
        lease, self._lease = self._lease, ""
        try:
            if lease:
                self._gateway.ask("/v3/lease/revoke", {"ID": lease}, Deadline(2 * ATTEMPT))
        except PoolError:
            pass

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def condition(self) -> Dict[str, Any]:
        """For a transaction: that this lock is still held."""
        if not self._lease or not self.token:
            raise LockLost(f'"{self.name}" is not held')
        equal = {"target": "CREATE", "result": "EQUAL", "create_revision": self.token}
        return {"key": self._key, **equal}

    def question(self) -> Dict[str, Any]:
        return {"request_range": {"key": self._key}}

    def _grant(self, deadline: Deadline) -> None:
        begin = time.monotonic()
        answer = self._gateway.ask("/v3/lease/grant", {"TTL": self._ttl}, self._patience(deadline))
        self._lease = answer["ID"]
        self._expiry = begin + self._ttl
        self._stop.clear()
        self._thread = threading.Thread(target=self._keep, name="bellows-lock", daemon=True)
        self._thread.start()

    def _patience(self, deadline: Deadline) -> Deadline:
        """For one question: as long as there is time, and at least for an answer."""
        left = deadline.left()
        return Deadline(4 * self._ttl if left is None else max(left, ATTEMPT))

    def _keep(self) -> None:
        while not self._stop.wait(self._ttl / 3):
            begin = time.monotonic()
            try:
                answer = self._gateway.ask_once("/v3/lease/keepalive", {"ID": self._lease}, ATTEMPT)
                if int(answer.get("result", {}).get("TTL", 0)) <= 0:
                    self._until = self._expiry = 0.0
                    return
                self._expiry = begin + self._ttl
                if self._until:
                    self._until = self._expiry
            except (NotSent, Lost, PoolError):
                if begin > self._expiry:
                    return

    def _try(self, deadline: Deadline) -> bool:
        body = {
            "compare": [
                {"key": self._key, "target": "CREATE", "result": "EQUAL", "create_revision": 0}
            ],
            "success": [{"request_put": {"key": self._key, "lease": self._lease}}],
            "failure": [self.question()],
        }
        # To repeat it does no harm: it is this lease's or it is not.
        try:
            answer = self._gateway.ask("/v3/kv/txn", body, self._patience(deadline))
        except InvalidError as error:
            raise Unavailable(f'"{self.name}": the lease for it has ended: {error}') from error
        if answer.get("succeeded"):
            self.token = int(answer["header"]["revision"])
        else:
            (pair,) = answer["responses"][0]["response_range"].get("kvs") or [{}]
            if pair.get("lease") != self._lease:
                self._seen = int(answer["header"]["revision"])
                return False
            self.token = int(pair["create_revision"])
        self._until = self._expiry
        if not self.held:
            raise Unavailable(f'"{self.name}": its lease ended before the lock was had')
        return True

    def _wait(self, deadline: Deadline) -> None:
        """Until the key is deleted, or for a while."""
        if time.monotonic() > self._expiry:
            raise Unavailable(f'"{self.name}": the lease for it could not be kept')
        request = {"create_request": {"key": self._key, "start_revision": self._seen + 1}}
        try:
            for result in self._gateway.stream("/v3/watch", request, deadline.least(1.0)):
                if result.get("events") or result.get("canceled"):
                    return
        except (NotSent, Lost):
            time.sleep(deadline.least(0.02))


def is_held(pairs: Any, lock: Lock) -> bool:
    """Whether these are the lock's key as it has it."""
    return bool(pairs) and int(pairs[0]["create_revision"]) == lock.token
