# SPDX-License-Identifier: Apache-2.0
"""Fields that all members of a pool share, in its etcd.

Every change is a transaction that holds only if the field was not changed since it was read, and
carries an id of its own. So a change whose answer was lost can be sent again without harm: it takes
effect at most once, and whether it did is read from the field's history.
"""

import os
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Union

import msgpack

from .errors import HistoryLost, InvalidError, LockLost, MayHaveRun, PoolError, Unavailable
from .gateway import Deadline, Gateway, Lost, NotSent, decode, encode
from .lock import Lock, is_held

MOST_BYTES = 1 << 20
_LEAVE = object()  # what a function says to change nothing
_QUIET = 5.0  # seconds after which a watch is opened anew, at another server


@dataclass(frozen=True)
class _Version:
    """What a field was at some time."""

    revision: int = 0  # of its last change; 0: never written
    count: int = 0  # of changes
    id: bytes = b""
    value: Any = None


def _version(pairs: Any) -> _Version:
    if not pairs:
        return _Version()
    pair = pairs[0]
    content = msgpack.unpackb(decode(pair["value"]), strict_map_key=False)
    if not isinstance(content, list) or len(content) != 2:
        raise InvalidError("a field of the pool was written by something else")
    return _Version(int(pair["mod_revision"]), int(pair["version"]), *content)


def _equal(one: Any, other: Any) -> bool:
    """As they are stored: True is not 1, and a tuple is a list."""
    return msgpack.packb(one) == msgpack.packb(other)


def _pack(id: bytes, value: Any) -> bytes:
    try:
        data = msgpack.packb([id, value])
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidError(f"MessagePack has no form for this value: {error}") from error
    if len(data) > MOST_BYTES:
        raise InvalidError(f"a value of {len(data)} bytes: a field has at most {MOST_BYTES}")
    return data


class Shared:
    """Fields of one class or name in a pool: attributes or items, None if never written.

    Reads see every change that was acknowledged before them, by any member. Each call takes at
    most `timeout` seconds; it raises Unavailable if it certainly had no effect, and MayHaveRun if
    the answer was lost. Values are what MessagePack has: None, bool, int, float, str, bytes,
    lists, dicts. `pool` is the pool's directory, by default $BELLOWS_POOL. Threads may share it.
    """

    def __init__(self, name: Union[str, type], pool: Optional[str] = None, timeout: float = 10.0):
        name = name if isinstance(name, str) else name.__qualname__
        if not name or "/" in name:
            raise InvalidError(f'"{name}" is no name for shared fields: it is empty or has a "/"')
        pool = pool or os.environ.get("BELLOWS_POOL")
        if not pool:
            raise InvalidError("there is no pool: BELLOWS_POOL is not set, and none is named")
        hidden = {
            "_name": name,
            "_timeout": timeout,
            "_gateway": Gateway(pool),
            "_known": {},
            "_guard": threading.Lock(),
        }
        self.__dict__.update(hidden)

    _name: str
    _timeout: float
    _gateway: Gateway
    _known: Dict[str, _Version]
    _guard: threading.Lock

    # Attributes and items.

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_"):
            raise AttributeError(field)
        return self[field]

    def __setattr__(self, field: str, value: Any) -> None:
        if field.startswith("_") or hasattr(type(self), field):
            raise AttributeError(f'"{field}" can\'t be a field that is used as an attribute')
        self[field] = value

    def __getitem__(self, field: str) -> Any:
        return self._read(field, Deadline(self._timeout)).value

    def __setitem__(self, field: str, value: Any) -> None:
        self.set(field, value)

    # Changes.

    def get(self, field: str, timeout: Optional[float] = None) -> Any:
        """The value. Raises Unavailable."""
        return self._read(field, self._deadline(timeout)).value

    def set(
        self, field: str, value: Any, lock: Optional[Lock] = None, timeout: Optional[float] = None
    ) -> None:
        """Writes it, whatever it was; with a lock only if that is held. Raises LockLost."""
        # What this process saw last may be old, and then the transaction says what is there now.
        with self._guard:
            seen = self._known.get(field)
        self._change(field, lambda _: value, lock, self._deadline(timeout), seen or _Version())

    def compare_and_set(
        self,
        field: str,
        old: Any,
        new: Any,
        lock: Optional[Lock] = None,
        timeout: Optional[float] = None,
    ) -> bool:
        """Writes `new` if the value is `old`; whether it did. Raises LockLost."""
        return self._change(
            field, lambda now: new if _equal(now, old) else _LEAVE, lock, self._deadline(timeout)
        )[0]

    def update(
        self,
        field: str,
        function: Callable[[Any], Any],
        lock: Optional[Lock] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Replaces the value by function(value) and returns that. The function may be called
        several times, and has no other effect. Raises LockLost."""
        return self._change(field, function, lock, self._deadline(timeout))[1]

    def add(self, field: str, n: Union[int, float] = 1, timeout: Optional[float] = None) -> Any:
        """Adds to a number, 0 if it was never written, and returns the sum."""

        def added(value: Any) -> Any:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not number:
                raise InvalidError(f'"{field}" of {self._name} is no number: {value!r:.60}')
            return (value or 0) + n

        return self.update(field, added, timeout=timeout)

    def _change(
        self,
        field: str,
        function: Callable[[Any], Any],
        lock: Optional[Lock],
        deadline: Deadline,
        seen: Optional[_Version] = None,
    ) -> Tuple[bool, Any]:
        now = self._read(field, deadline) if seen is None else seen
        while True:
            value = function(now.value)
            if value is _LEAVE:
                return False, now.value
            done, now = self._swap(field, now, value, lock, deadline)
            if done:
                return True, value
            if deadline.passed():
                raise Unavailable(f'"{field}" of {self._name} is changed by others all the time')

    def _swap(
        self, field: str, base: _Version, value: Any, lock: Optional[Lock], deadline: Deadline
    ) -> Tuple[bool, _Version]:
        """Replaces one version by another; whether it did, and what there is now."""
        id = uuid.uuid4().bytes
        key = self._key(field)
        condition = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": base.revision}
        body = {
            "compare": [condition] + ([lock.condition()] if lock else []),
            "success": [{"request_put": {"key": key, "value": encode(_pack(id, value))}}],
            "failure": [{"request_range": {"key": key}}] + ([lock.question()] if lock else []),
        }
        answer, lost = self._gateway.settle("/v3/kv/txn", body, deadline)
        revision = int(answer["header"]["revision"])
        if answer.get("succeeded"):
            return True, self._remember(field, _Version(revision, base.count + 1, id, value))
        found = [reply["response_range"].get("kvs") for reply in answer["responses"]]
        now = self._remember(field, _version(found[0]))
        if lost and self._successor(field, base, now, deadline).id == id:
            return True, now
        if lock and not is_held(found[1], lock):
            raise LockLost(f"{lock.name}: the lock was lost, so \"{field}\" was not changed")
        return False, now

    def _successor(self, field: str, base: _Version, now: _Version, deadline: Deadline) -> _Version:
        """The version that followed `base`, or `base` if none did. Raises MayHaveRun."""
        before = base.revision
        try:
            while now.count > base.count + 1:
                middle = self._read(field, deadline, max(1, (before + now.revision) // 2))
                if middle.count > base.count:
                    now = middle
                else:
                    before = max(before + 1, (before + now.revision) // 2)
        except PoolError as error:
            raise MayHaveRun(f"an answer was lost, and so is what was done: {error}") from error
        return now

    # Reads.

    def _read(self, field: str, deadline: Deadline, revision: int = 0) -> _Version:
        body = {"key": self._key(field), "revision": revision, "serializable": False}
        version = _version(self._gateway.ask("/v3/kv/range", body, deadline).get("kvs"))
        return version if revision else self._remember(field, version)

    def watch(self, field: str, timeout: Optional[float] = None) -> Iterator[Any]:
        """The value now, and then each that it gets, until it has been the same for `timeout`
        seconds (None: for ever). None is left out, also after lost connections. Raises
        HistoryLost if it was away from etcd for too long for that."""
        now = self._read(field, self._deadline(None))
        yield now.value
        deadline, after = Deadline(timeout), now.revision
        while True:
            try:
                for version in self._events(field, after + 1, deadline):
                    after = version.revision
                    yield version.value
                    deadline = Deadline(timeout)
            except (NotSent, Lost):
                pass
            if deadline.passed():
                return
            time.sleep(deadline.least(0.05))
            # Raises Unavailable if it is not only that server.
            self._read(field, self._deadline(None))

    def _events(self, field: str, revision: int, deadline: Deadline) -> Iterator[_Version]:
        request = {"create_request": {"key": self._key(field), "start_revision": revision}}
        for result in self._gateway.stream("/v3/watch", request, deadline.least(_QUIET)):
            if result.get("canceled"):
                raise HistoryLost(f'changes of "{field}" since revision {revision} are forgotten')
            for event in result.get("events", []):
                yield _version([event["kv"]])

    # Locks.

    def lock(self, name: str, ttl: int = 10) -> Lock:
        """A lock of the whole pool, which is lost if its holder does not answer for `ttl` seconds:
        `with shared.lock("x") as lock: shared.set("y", 1, lock=lock)`."""
        return Lock(self._gateway, f"/bellows/locks/{self._name}/{name}", ttl)

    def close(self) -> None:
        """Closes the connections."""
        self._gateway.close()

    def _key(self, field: str) -> str:
        if not isinstance(field, str) or not field:
            raise InvalidError(f"{field!r} is no name of a field")
        return encode(f"/bellows/fields/{self._name}/{field}".encode())

    def _deadline(self, timeout: Optional[float]) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout)

    def _remember(self, field: str, version: _Version) -> _Version:
        with self._guard:
            known = self._known.get(field)
            if known is None or known.revision < version.revision:
                self._known[field] = version
        return version
