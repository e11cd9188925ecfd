# SPDX-License-Identifier: Apache-2.0
"""Which methods of a class are served, and how they may be called."""

import inspect
from typing import Any, Callable, Dict, NamedTuple, Optional, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: How long a call may take that says nothing else, in seconds.
DEFAULT_TIMEOUT_S = 30.0

_IDEMPOTENT = "_bellows_idempotent"
_TIMEOUT = "_bellows_timeout"


class Method(NamedTuple):
    """How a method may be called. `timeout_s`: 0 for the caller's own."""

    idempotent: bool
    stream: bool
    timeout_s: float


def idempotent(function: _Function) -> _Function:
    """Marks a method that may run twice: when its member is lost, another one is asked."""
    setattr(function, _IDEMPOTENT, True)
    return function


def timeout(seconds: float) -> Callable[[_Function], _Function]:
    """Gives calls of a method so many seconds, unless the caller says something else."""
    if not 0 < seconds < 1e7:
        raise ValueError(f"a call can't have {seconds} seconds")

    def mark(function: _Function) -> _Function:
        setattr(function, _TIMEOUT, float(seconds))
        return function

    return mark


def methods_of(kind: type, base: type) -> Dict[str, Method]:
    """The public methods of a class, but not what it has from `base`."""
    found = {}
    for name in dir(kind):
        if name.startswith("_") or hasattr(base, name):
            continue
        if not inspect.isroutine(inspect.getattr_static(kind, name)):
            continue
        function = getattr(kind, name)
        found[name] = Method(
            getattr(function, _IDEMPOTENT, False),
            inspect.isgeneratorfunction(inspect.unwrap(function)),
            getattr(function, _TIMEOUT, 0.0),
        )
    return found


def described(methods: Dict[str, Method]) -> Dict[str, Dict[str, Any]]:
    """For callers."""
    return {name: method._asdict() for name, method in methods.items()}


def from_description(description: Any) -> Dict[str, Method]:
    """What `described` gave a caller. ValueError: this is something else."""
    try:
        return {
            str(name): Method(bool(one["idempotent"]), bool(one["stream"]), float(one["timeout_s"]))
            for name, one in description.items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a member does not describe its methods: {error!r}") from error


def seconds_of(method: Method, own: Optional[float]) -> float:
    """How long a call may take."""
    return own if own is not None else method.timeout_s or DEFAULT_TIMEOUT_S
