# SPDX-License-Identifier: Apache-2.0
"""Stubs: what looks like an elastic object, and asks the members of its pool."""

import itertools
import time
import uuid
from typing import Any, Iterator, Optional

import grpc

from . import wire
from .errors import MayHaveRun, RefusedError, TimeoutError, Unavailable
from .members import Watch
from .methods import Method, seconds_of
from .place import channel_credentials, directory_of
from .targets import Target, Targets

_FAR_S = 1e7
_AGAIN = ((wire.AGAIN, "1"),)

#: What gRPC itself says of a call for which it had no connection. Where it says something else,
#: MayHaveRun is raised in place of a second try.
_NEVER_SENT = "failed to connect to all addresses"
#: What the C++ server says of a call for which it had not even a thread to refuse it.
_NO_THREAD = "Server Threadpool Exhausted"


class Caller:
    """Sends calls to members, and elsewhere when that is right.

    At most once: a call goes to another member only if it has certainly not run, or is idempotent.
    """

    def __init__(self, pool: str, timeout: Optional[float]) -> None:
        self.pool = pool
        self.timeout = timeout
        directory = directory_of(pool)
        self._id = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._targets = Targets(channel_credentials(directory))
        self._watch = Watch(directory, self._targets.update)

    def close(self) -> None:
        self._watch.close()
        self._targets.close()

    def method(self, name: str) -> Method:
        """How a method is called. AttributeError: the members have none of that name."""
        methods = self._targets.methods
        if methods is None:
            seconds = self.timeout if self.timeout is not None else 30.0
            methods = self._targets.wait_for_methods(seconds)
        if methods is None:
            raise Unavailable(
                f"no member of pool {self.pool} answered in {seconds:g} s: {self._watch.trouble}"
            )
        if name not in methods:
            raise AttributeError(f"the members of pool {self.pool} have no method {name}")
        return methods[name]

    def call(self, name: str, method: Method, body: bytes, seconds: float) -> Any:
        """The answer of a method that doesn't stream."""
        sent = Sending(self, name, method, seconds)
        while True:
            target = sent.next_target()
            try:
                answer = target.call(body, sent.left_s, sent.metadata)
            except grpc.RpcError as error:
                sent.failed(target, error)
                continue
            finally:
                self._targets.give(target)
            if not target.well:
                target.works()
            return wire.unpack_answer(answer)

    def stream(self, name: str, method: Method, body: bytes, seconds: float) -> Iterator[Any]:
        """The items of a method that streams."""
        sent = Sending(self, name, method, seconds)
        while True:
            target = sent.next_target()
            call = target.stream(body, sent.left_s, sent.metadata)
            begun = False
            try:
                for item in call:
                    begun = True
                    yield wire.unpack_answer(item)
                target.works()
                return
            except grpc.RpcError as error:
                if begun:
                    # The caller has items that another member would send again.
                    sent.method = method._replace(idempotent=False)
                sent.failed(target, error)
            finally:
                call.cancel()
                self._targets.give(target)

    def next_id(self) -> str:
        return f"{self._id}:{next(self._numbers)}"

    def take(self, deadline: float) -> Optional[Target]:
        return self._targets.take(deadline)

    @property
    def trouble(self) -> str:
        return self._watch.trouble


class Sending:
    """One call on its way: what may be done with it after each failure."""

    def __init__(self, caller: Caller, name: str, method: Method, seconds: float) -> None:
        self._caller = caller
        self._name = name
        self.method = method
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._id = ((wire.ID, caller.next_id()),)
        self._may_have_run = False
        self._refusal = ""
        self.left_s = seconds
        self.metadata: Any = ()

    def next_target(self) -> Target:
        """The member that is asked next. Raises what the caller is told when there is none in time."""
        target = self._caller.take(self._deadline)
        if target is not None:
            self.left_s = self._deadline - time.monotonic()
            self.metadata = self._id + target.metadata
            if self._may_have_run:
                self.metadata += _AGAIN
            return target
        why = self._refusal or self._caller.trouble
        if self._may_have_run:
            raise TimeoutError(f"{self._name} was not answered in {self._seconds:g} s: {why}")
        raise Unavailable(
            f"no member of pool {self._caller.pool} took {self._name} in {self._seconds:g} s: {why}"
        )

    def failed(self, target: Target, error: grpc.RpcError) -> None:
        """Returns when the call may be sent again."""
        code, said, at = error.code(), error.details() or "", target.member.address
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TimeoutError(f"{self._name} was not answered by {at} in {self._seconds:g} s") from None
        self._refusal = f"{at}: {said}"
        if any(key == wire.NOT_RUN for key, _ in error.trailing_metadata() or ()):
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                raise RefusedError(f"{at} refuses {self._name}: {said}") from None
            if code is grpc.StatusCode.UNAVAILABLE:
                target.retire()
            else:
                target.fails(lost=False)
            return
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and said == _NO_THREAD:
            target.fails(lost=False)
            return
        target.fails(lost=True)
        if code is grpc.StatusCode.UNAVAILABLE and said.startswith(_NEVER_SENT):
            return
        self._may_have_run = True
        if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            raise MayHaveRun(f"{at} failed in {self._name}: {code.name}, {said}") from None
        if not self.method.idempotent:
            raise MayHaveRun(
                f"{at} was lost in {self._name}, which is not idempotent: {said}"
            ) from None


class BoundMethod:
    """A method of the members: called like one of an object here."""

    def __init__(self, caller: Caller, name: str, method: Method, timeout: Optional[float]) -> None:
        self.__name__ = name
        self._caller = caller
        self._method = method
        self._seconds = seconds_of(method, timeout)
        self._send = caller.stream if method.stream else caller.call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        body = wire.pack([self.__name__, args, kwargs])
        return self._send(self.__name__, self._method, body, self._seconds)

    def within(self, seconds: float) -> "BoundMethod":
        """The same method, with another time for each call: `index.look_up.within(2)("word")`."""
        if not 0 < seconds < _FAR_S:
            raise ValueError(f"a call can't have {seconds} seconds")
        return BoundMethod(self._caller, self.__name__, self._method, seconds)


class Stub:
    """Has the methods of a pool's object. Any number of threads may call them at once.

    A call raises what the method raised, with the traceback in the member as its cause. Besides:
    Unavailable: it has not run; MayHaveRun, and TimeoutError, which is one: it may have.
    """

    def __init__(self, caller: Caller) -> None:
        self._bellows_caller = caller

    def __getattr__(self, name: str) -> BoundMethod:
        if name.startswith("_"):
            raise AttributeError(f"a stub has no {name}")
        caller = self._bellows_caller
        bound = BoundMethod(caller, name, caller.method(name), caller.timeout)
        # The next time it is found without this.
        self.__dict__[name] = bound
        return bound

    def __enter__(self) -> "Stub":
        return self

    def __exit__(self, *_: Any) -> None:
        close(self)


def connect(pool: str, timeout: Optional[float] = None) -> Stub:
    """A stub for the object of a pool: its name, or its directory if there is a slash in it.

    timeout: the seconds of each call, else what its method has (`@timeout`), else 30. A process that forks
    connects after that. Unavailable: the pool's key can't be read.
    """
    if timeout is not None and not 0 < timeout < _FAR_S:
        raise ValueError(f"a call can't have {timeout} seconds")
    return Stub(Caller(pool, timeout))


def close(stub: Stub) -> None:
    """Ends a stub's connections; `with connect(...) as stub` does so at its end."""
    stub._bellows_caller.close()
