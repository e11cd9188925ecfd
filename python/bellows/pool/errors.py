# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a pool, and the exceptions of its members' methods."""

import builtins
from typing import Dict, Optional, Type

from ..errors import Error


class PoolError(Error):
    """Something of the pool cannot be used; the text says what and why."""


class Unavailable(PoolError):
    """Nobody answers, and what was asked for was certainly not done: it may be asked again."""


class MayHaveRun(PoolError):
    """The answer was lost: what was asked for was done once, or never, or may still be done."""


class InvalidError(PoolError, ValueError):
    """An argument is wrong, or a field has a value that this cannot be done to."""


class FullError(PoolError):
    """There is no room for more fields; this one was not changed."""


class LockLost(PoolError):
    """The lock is no longer held, so nothing was done."""


class HistoryLost(PoolError):
    """A watch was away for so long that changes since then are forgotten: read the field anew."""


class TimeoutError(MayHaveRun, builtins.TimeoutError):
    """The call had been sent, and no answer came within its time."""


class RefusedError(PoolError):
    """The member did not understand the call, or does not have such a method. It has not run."""


class RemoteError(PoolError):
    """A method raised an exception whose class the caller doesn't have.

    `kind` is the name of that class, and the text is that of the exception.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind = kind


class RemoteTraceback(Exception):
    """The cause of an exception that came from a member: where it was raised there."""

    def __str__(self) -> str:
        return f"in the member:\n{self.args[0]}"


_KNOWN: Dict[str, Type[Exception]] = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    # The interpreter gives these a meaning of its own.
    and not issubclass(kind, (StopIteration, StopAsyncIteration))
}


def register_exception(kind: Type[Exception]) -> Type[Exception]:
    """Raises this class in callers when a method raised one of its name; may be a decorator.

    It is made from the text alone. Those of Python are known without this.
    """
    _KNOWN[kind.__name__] = kind
    return kind


def text_of(error: BaseException) -> str:
    """What the class needs to make the exception again; a KeyError would quote its text twice."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        return error.args[0]
    return str(error)


def remote_error(kind: str, text: str, traceback: Optional[str]) -> Exception:
    """The exception for what a member answered, with the traceback as its cause."""
    try:
        error = _KNOWN[kind](text)
    except Exception:  # Unknown, or it wants more than a text.
        error = RemoteError(kind, text)
    error.__cause__ = RemoteTraceback(traceback) if traceback else None
    return error
