# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one class for each code of enum bellows_model_result."""

from ..errors import Error


class ModelError(Error):
    """A model cannot be had; the text is a sentence of the model store or of its library."""


class InvalidError(ModelError, ValueError):
    """An argument is wrong."""

    code = -1


class NotFoundError(ModelError, LookupError):
    """There is no such model or tensor, or none that this job may see."""

    code = -2


class NoRoomError(ModelError):
    """The node has no memory for the model, or none now."""

    code = -3


class CorruptError(ModelError):
    """The stored model is damaged, or no model."""

    code = -4


class UnavailableError(ModelError):
    """The model store, or what it reads from, does not work. Trying again may help."""

    code = -5


class OutOfMemoryError(ModelError, MemoryError):
    """This program is out of memory."""

    code = -6


class CancelledError(ModelError):
    """The wait for a model was given up."""

    code = -7


class MismatchError(ModelError, ValueError):
    """The tensors of the model are not those of the module."""


_BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidError,
        NotFoundError,
        NoRoomError,
        CorruptError,
        UnavailableError,
        OutOfMemoryError,
        CancelledError,
    )
}


def error_for(code: int, sentence: str) -> ModelError:
    """The exception for a negative code; one that a newer library has is a ModelError."""
    error = _BY_CODE.get(code, ModelError)(sentence)
    error.code = code
    return error
