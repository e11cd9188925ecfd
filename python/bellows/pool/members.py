# SPDX-License-Identifier: Apache-2.0
"""The members of a pool as its keeper tells them: Keeper.Watch of pool/wire/pool.proto, read by hand.

These few fields are not worth a generated module, which would bind the package to one version of
protobuf.
"""

import random
import threading
from typing import Callable, Iterator, List, NamedTuple, Tuple, Union

import grpc

from .place import channel_credentials, keeper_address, open_channel

READY = 2
DRAINING = 3

_WATCH = "/bellows.pool.Keeper/Watch"
# The keeper says something each two seconds. A new stream now and then finds one that hangs.
_STREAM_S = 30.0
_RETRY_S = 0.2


class Member(NamedTuple):
    """One of the members. `incarnation` differs from that of whoever had the address before."""

    job: int
    address: str
    incarnation: int
    state: int


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


def _fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        value: Union[int, bytes]
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 2, 5):
            size, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"there is no wire type {kind}")
        yield key >> 3, value


def _member(data: bytes) -> Member:
    fields = dict(_fields(data))
    address = fields.get(2, b"")
    numbers = [fields.get(field, 0) for field in (1, 3, 4)]
    if not isinstance(address, bytes) or not all(isinstance(number, int) for number in numbers):
        raise ValueError("a member has a field of the wrong type")
    return Member(numbers[0], address.decode(), numbers[1], numbers[2])  # type: ignore[arg-type]


def parse(data: bytes) -> List[Member]:
    """The members of one message Members. ValueError: it is none."""
    try:
        return [
            _member(value)
            for field, value in _fields(data)
            if field == 2 and isinstance(value, bytes)
        ]
    except IndexError as error:
        raise ValueError("a message is cut off") from error


class Watch:
    """Follows the keeper, which may move, in a thread of its own.

    Each list goes to `told`. While there is no keeper, the last one stands.
    """

    def __init__(self, directory: str, told: Callable[[List[Member]], None]) -> None:
        self._directory = directory
        self._told = told
        self._credentials = channel_credentials(directory)
        self._closed = threading.Event()
        self._call: Union[grpc.Call, None] = None
        self.trouble = "its keeper has not said yet who its members are"
        self._thread = threading.Thread(target=self._run, name="bellows-pool-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        call = self._call
        if call is not None:
            call.cancel()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._closed.is_set():
            address = keeper_address(self._directory)
            if address is None:
                self.trouble = f"{self._directory}/keeper.json does not say where its keeper is"
            else:
                self._follow(address)
            self._closed.wait(_RETRY_S * random.uniform(0.5, 1.5))

    def _follow(self, address: str) -> None:
        with open_channel(address, self._credentials) as channel:
            try:
                self._call = channel.unary_stream(_WATCH)(b"", timeout=_STREAM_S)
                for message in self._call:
                    if self._closed.is_set():
                        return
                    self._told(parse(message))
                    self.trouble = "its keeper names no member that is ready"
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self.trouble = f"its keeper at {address} does not answer: {error.details()}"
            except Exception as error:  # Whatever it says, the next list may be better.
                self.trouble = f"its keeper at {address} says what can't be read: {error}"
            finally:
                self._call = None
