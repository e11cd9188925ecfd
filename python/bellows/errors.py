# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one class for each code of enum bellows_result."""

from typing import Optional


class Error(Exception):
    """A call of the library failed; the text is the library's message.

    `code` is the negative number of enum bellows_result. `failed_step` is the step of the
    save in flight, if it was that which failed and not the call itself.
    """

    code: int = 0
    failed_step: Optional[int] = None


class InvalidError(Error, ValueError):
    """An argument is wrong, or the ranks disagree."""

    code = -1


class MismatchError(Error, ValueError):
    """The stored array has another type or shape, or the checkpoint holds other things."""

    code = -2


class AgentError(Error):
    """The checkpoint agent cannot be started or has ended: exit, and start again."""

    code = -3


class StorageError(Error):
    """Reading or writing failed, as when the disk is full. Training may continue."""

    code = -4


class CorruptError(Error):
    """Stored data does not match its digest."""

    code = -5


class BusyError(Error):
    """Another program holds the checkpoint directory or this rank."""

    code = -6


class FencedError(Error):
    """A newer attempt of this job owns the checkpoint directory: exit."""

    code = -7


class OutOfMemoryError(Error, MemoryError):
    """There is too little memory for a copy of the arrays."""

    code = -8


_BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidError,
        MismatchError,
        AgentError,
        StorageError,
        CorruptError,
        BusyError,
        FencedError,
        OutOfMemoryError,
    )
}


def error_for(code: int, sentence: str) -> Error:
    """The exception for a negative code; one that a newer library has and we do not is an Error."""
    error = _BY_CODE.get(code, Error)(sentence)
    error.code = code
    return error
