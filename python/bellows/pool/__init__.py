# SPDX-License-Identifier: Apache-2.0
"""What programs of an elastic pool use: see python/README.md."""

from typing import TYPE_CHECKING, Any

from .errors import (
    FullError,
    HistoryLost,
    InvalidError,
    LockLost,
    MayHaveRun,
    PoolError,
    Unavailable,
)

if TYPE_CHECKING:
    from .shared import Lock, Shared

__all__ = [
    "FullError",
    "HistoryLost",
    "InvalidError",
    "Lock",
    "LockLost",
    "MayHaveRun",
    "PoolError",
    "Shared",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    # It imports msgpack, which a program that only imports bellows may lack.
    if name not in ("Lock", "Shared"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import shared

    return getattr(shared, name)
