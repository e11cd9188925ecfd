# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one class for each code of enum bellows_ps_result."""

import builtins

from ..errors import Error


class ParamServerError(Error):
    """The parameter server cannot be used; the text is a sentence of it or of its library."""


class InvalidError(ParamServerError, ValueError):
    """An argument is wrong, or other learners have another model or optimizer."""

    code = -1


class UnavailableError(ParamServerError):
    """There is no bellows-ps, it has ended for good, or it has put this learner out."""

    code = -2


class FullError(ParamServerError):
    """There are as many learners as bellows-ps takes."""

    code = -3


class OutOfMemoryError(ParamServerError, MemoryError):
    """There is no memory."""

    code = -4


class TimeoutError(ParamServerError, builtins.TimeoutError):
    """A call took longer than `wait`."""

    code = -5


class DeviceError(ParamServerError):
    """CUDA refuses or fails; the text has its error."""

    code = -6


_BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidError,
        UnavailableError,
        FullError,
        OutOfMemoryError,
        TimeoutError,
        DeviceError,
    )
}


def error_for(code: int, sentence: str) -> ParamServerError:
    """The exception for a negative code; one that a newer library has is a ParamServerError."""
    error = _BY_CODE.get(code, ParamServerError)(sentence)
    error.code = code
    return error
