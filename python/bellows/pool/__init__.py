# SPDX-License-Identifier: Apache-2.0
"""Elastic pools: what a member says of itself, objects that members serve together, and what they share.

See python/README.md and bellows-pool(1).
"""

from typing import TYPE_CHECKING, Any

from .agent import metric, vote
from .errors import (
    FullError,
    HistoryLost,
    InvalidError,
    LockLost,
    MayHaveRun,
    PoolError,
    RefusedError,
    RemoteError,
    RemoteTraceback,
    TimeoutError,
    Unavailable,
    register_exception,
)
from .methods import idempotent, timeout

if TYPE_CHECKING:
    from .call import current_call
    from .server import ElasticObject
    from .shared import Lock, Shared
    from .stub import Stub, close, connect

__all__ = [
    "ElasticObject",
    "FullError",
    "HistoryLost",
    "InvalidError",
    "Lock",
    "LockLost",
    "MayHaveRun",
    "PoolError",
    "RefusedError",
    "RemoteError",
    "RemoteTraceback",
    "Shared",
    "Stub",
    "TimeoutError",
    "Unavailable",
    "close",
    "connect",
    "current_call",
    "idempotent",
    "metric",
    "register_exception",
    "timeout",
    "vote",
]

#: Where those are that need gRPC and MessagePack, which a program that only imports bellows may lack.
_LATER = {
    "ElasticObject": "server",
    "Lock": "shared",
    "Shared": "shared",
    "Stub": "stub",
    "close": "stub",
    "connect": "stub",
    "current_call": "call",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LATER[name]}", __name__), name)
