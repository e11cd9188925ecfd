# SPDX-License-Identifier: Apache-2.0
"""The calls that come to a member: which are taken, and what answers them."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import grpc

from . import call, wire
from .methods import Method, described

_Work = Tuple[Callable[..., Any], List[Any], Dict[str, Any]]


class _Threads(ThreadPoolExecutor):
    """Counts the calls that run and those that wait for a thread."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "bellows-pool-call")
        self._counting = threading.Lock()
        self.calls = 0

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        with self._counting:
            self.calls += 1
        try:
            future = super().submit(function, *args, **kwargs)
        except RuntimeError:
            self._end(None)
            raise
        # Even a call that is cancelled before it begins comes here.
        future.add_done_callback(self._end)
        return future

    def _end(self, _: Optional["Future[Any]"]) -> None:
        with self._counting:
            self.calls -= 1


class Service(grpc.GenericRpcHandler):
    """Answers calls by the methods of an object.

    At most `threads` run at once and as many more wait as `limit` allows; what is above that is
    refused at once, so that callers ask another member.
    """

    def __init__(
        self, target: Any, methods: Dict[str, Method], incarnation: str, threads: int, limit: int
    ) -> None:
        self._description = described(methods)
        self._bound = {name: getattr(target, name) for name in methods}
        self._methods = methods
        self._incarnation = incarnation
        self._limit = limit
        self.threads = _Threads(threads)
        # Refusals don't wait behind calls.
        self._refusals = ThreadPoolExecutor(1, "bellows-pool-refusal")
        self.draining = False
        #: When a call came last, by time.monotonic().
        self.asked = 0.0
        self._unary = grpc.unary_unary_rpc_method_handler(self._call)
        self._stream = grpc.unary_stream_rpc_method_handler(self._call_stream)
        code = grpc.StatusCode
        self._drained = self._refusing(code.UNAVAILABLE, "the member drains")
        self._successor = self._refusing(code.UNAVAILABLE, "the member is not the one that was meant")
        self._full = self._refusing(code.RESOURCE_EXHAUSTED, f"the member has {limit} calls")

    @property
    def calls(self) -> int:
        """Calls that run or wait for a thread."""
        return self.threads.calls

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        self._refusals.shutdown(wait=False)

    def service(self, details: grpc.HandlerCallDetails) -> Optional[grpc.RpcMethodHandler]:
        if details.method == wire.CALL:
            handler = self._unary
        elif details.method == wire.STREAM:
            handler = self._stream
        else:
            return None
        self.asked = time.monotonic()
        if self.draining:
            return self._drained
        for key, value in details.invocation_metadata:
            if key == wire.INCARNATION and value != self._incarnation != "":
                return self._successor
        return handler if self.threads.calls < self._limit else self._full

    def _refusing(self, code: grpc.StatusCode, why: str) -> grpc.RpcMethodHandler:
        def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
            return self._refuse(context, code, why)

        refuse.experimental_thread_pool = self._refusals  # type: ignore[attr-defined]
        return grpc.unary_unary_rpc_method_handler(refuse)

    @staticmethod
    def _refuse(context: grpc.ServicerContext, code: grpc.StatusCode, why: str) -> bytes:
        context.set_trailing_metadata(((wire.NOT_RUN, "1"),))
        context.abort(code, why)
        return b""

    def _method(self, body: bytes, context: grpc.ServicerContext, stream: bool) -> _Work:
        """What is to be called and with what. Refuses what can't be, before any of it has run."""
        refused = grpc.StatusCode.INVALID_ARGUMENT
        try:
            name, args, kwargs = wire.unpack_request(body)
        except wire.WireError as error:
            self._refuse(context, refused, str(error))
        if name == wire.DESCRIBE and not stream:
            return lambda: self._description, [], {}
        method = self._methods.get(name)
        if method is None:
            self._refuse(context, refused, f"there is no method {name[:100]}")
        elif method.stream != stream:
            self._refuse(context, refused, f"{name} {'streams' if method.stream else 'does not stream'}")
        elif not method.idempotent and (wire.AGAIN, "1") in context.invocation_metadata():
            self._refuse(context, refused, f"{name} may have run already and is not idempotent")
        return self._bound[name], args, kwargs

    def _call(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        function, args, kwargs = self._method(body, context, stream=False)
        call.enter(context)
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # sys.exit() too: nobody else would answer.
            return wire.pack_failure(error)
        finally:
            call.enter(None)
        return wire.pack_value(value)

    def _call_stream(self, body: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        function, args, kwargs = self._method(body, context, stream=True)
        call.enter(context)
        try:
            for value in function(*args, **kwargs):
                yield wire.pack([0, value])
        except Exception as error:
            yield wire.pack_failure(error)
        finally:
            call.enter(None)
