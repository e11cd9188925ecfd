# SPDX-License-Identifier: Apache-2.0
"""What is in the calls of elastic objects and in their answers: MessagePack, with arrays of numpy.

Nothing is pickled, so neither side can make the other run code.
"""

import re
import sys
import traceback
from typing import Any, Dict, List, Tuple

import msgpack

from .errors import remote_error, text_of

CALL = "/bellows.pool.Object/Call"
STREAM = "/bellows.pool.Object/Stream"

#: Metadata of a call: the caller's id and its number; whom it means; that it may have run before.
ID, INCARNATION, AGAIN = "bellows-call", "bellows-incarnation", "bellows-again"
#: Trailing metadata of a refusal: the call has certainly not run.
NOT_RUN = "bellows-not-run"

#: The method that every object has: what the others are called, and how.
DESCRIBE = "__describe__"

#: The largest call and the largest answer, in bytes.
LARGEST = 64 << 20

#: The extension type of an array: [type as numpy writes it, shape, bytes in C order].
ARRAY = 1
_NUMBERS = re.compile(r"[<>|][biufc]\d{1,2}")

_LONGEST_TRACEBACK = 16 << 10

Request = Tuple[str, List[Any], Dict[str, Any]]


class WireError(ValueError):
    """The bytes are not what they should be."""


def _extended(value: Any) -> Any:
    """For what MessagePack has no type."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if not _NUMBERS.fullmatch(value.dtype.str):
            raise TypeError(f"arrays of {value.dtype} can't be sent, only those of numbers")
        if isinstance(value, numpy.generic):
            return value.item()
        parts = [value.dtype.str, list(value.shape), value.tobytes()]
        return msgpack.ExtType(ARRAY, msgpack.packb(parts))
    if isinstance(value, int):
        raise ValueError("an integer of more than 64 bits can't be sent")
    raise TypeError(
        f"a {type(value).__name__} can't be sent: "
        "None, bool, numbers, str, bytes, lists, dicts, and arrays of numpy can"
    )


def _contracted(code: int, data: bytes) -> Any:
    if code != ARRAY:
        raise WireError(f"there is no extension type {code}")
    import numpy

    kind, shape, content = msgpack.unpackb(data)
    if not _NUMBERS.fullmatch(kind):
        raise WireError("an array has no such type")
    # A copy, since what is over bytes can't be written.
    return numpy.frombuffer(content, numpy.dtype(kind)).reshape(shape).copy()



def pack(value: Any) -> bytes:
    """The bytes of a value. TypeError: MessagePack has none for it; ValueError: it is too large."""
    body = msgpack.packb(value, default=_extended)
    if len(body) > LARGEST:
        raise ValueError(f"{len(body)} bytes can't be sent, {LARGEST} are the most")
    return body


def unpack(body: bytes) -> Any:
    """The value in these bytes. WireError: there is none, for whatever reason."""
    try:
        return msgpack.unpackb(body, ext_hook=_contracted, strict_map_key=False)
    except Exception as error:
        raise WireError(f"no value of MessagePack: {error or type(error).__name__}") from error


def unpack_request(body: bytes) -> Request:
    """Method, arguments and named arguments. WireError: something else came."""
    request = unpack(body)
    if (
        type(request) is list
        and len(request) == 3
        and type(request[0]) is str
        and type(request[1]) is list
        and type(request[2]) is dict
        and all(type(name) is str for name in request[2])
    ):
        return request[0], request[1], request[2]
    raise WireError("a call is [method, [argument, ...], {name: argument, ...}]")


def pack_failure(error: BaseException) -> bytes:
    """The answer of a method that raised this."""
    own = error.__traceback__
    # The first frame is that of the service.
    frames = own.tb_next if own is not None else None
    where = "".join(traceback.format_exception(type(error), error, frames))
    return msgpack.packb(
        [1, type(error).__name__, text_of(error)[:_LONGEST_TRACEBACK], where[-_LONGEST_TRACEBACK:]],
        unicode_errors="replace",
    )


def pack_value(value: Any) -> bytes:
    """The answer of a method that returned this, or which could not be sent."""
    try:
        return pack([0, value])
    except Exception as error:
        return pack_failure(error)


def unpack_answer(body: bytes) -> Any:
    """What the method returned; raises what it raised. WireError: this is no answer."""
    answer = unpack(body)
    if type(answer) is list and answer:
        if answer[0] == 0 and len(answer) == 2:
            return answer[1]
        if answer[0] == 1 and len(answer) == 4 and all(type(text) is str for text in answer[1:]):
            raise remote_error(*answer[1:])
    raise WireError("an answer is [0, value] or [1, type, text, traceback]")
