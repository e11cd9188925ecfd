# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a pool."""

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
