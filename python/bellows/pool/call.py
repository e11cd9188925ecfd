# SPDX-License-Identifier: Apache-2.0
"""What a method may ask about the call that it answers."""

import threading
from typing import Optional

import grpc

from . import wire


class Call:
    """The call that this thread answers."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    @property
    def id(self) -> str:
        """The caller's identity and the number of its call; one that is sent again keeps it."""
        for key, value in self._context.invocation_metadata():
            if key == wire.ID:
                return str(value)
        return ""

    def time_left(self) -> Optional[float]:
        """Seconds until the caller stops waiting; None: it waits for ever."""
        return self._context.time_remaining()

    def is_wanted(self) -> bool:
        """Whether the caller still waits."""
        return bool(self._context.is_active())


_threads = threading.local()


def enter(context: Optional[grpc.ServicerContext]) -> None:
    """From now on this thread answers that call."""
    _threads.context = context


def current_call() -> Call:
    """The call that this thread answers. RuntimeError: it answers none."""
    context = getattr(_threads, "context", None)
    if context is None:
        raise RuntimeError("this thread answers no call")
    return Call(context)
