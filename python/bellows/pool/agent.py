# SPDX-License-Identifier: Apache-2.0
"""What a program and the agent of its member say to each other, as libbellows_pool(3) does for C."""

import math
import os
import re
import socket
from typing import Iterator, NamedTuple, Optional

from .errors import Unavailable

_WAIT_S = 2.0
_LONGEST_LINE = 512
_NAME = re.compile(r"[A-Za-z0-9_:.]{1,128}")


class Order(NamedTuple):
    """What the agent tells: to end within so many seconds, or how many members are ready."""

    drain_s: Optional[int]
    size: Optional[int]


def in_member() -> bool:
    """Whether this program has an agent."""
    return bool(os.environ.get("BELLOWS_POOL_SOCKET"))


def metric(name: str, value: float) -> None:
    """A figure by which the pool's policy may choose its size, such as the length of a queue.

    ValueError: the name has other letters than A-Z a-z 0-9 _ : . or more than 128, or the value is not
    finite. Unavailable: there is no agent.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"a metric can't be called {name!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} can't be {value}")
    _say(f"metric {name} {float(value)!r}").close()


def vote(change: int) -> None:
    """This member's wish: so many members more, or fewer if it is negative."""
    if not -(2**31) <= change < 2**31:
        raise ValueError(f"a vote can't be {change}")
    _say(f"vote {change:d}").close()


def listen(port: int) -> None:
    """The program takes calls at this port of its node."""
    _say(f"listen {port:d}").close()


def ready() -> None:
    """From now on the program may be called."""
    _say("ready").close()


def watch() -> socket.socket:
    """A socket for `orders`; closing it ends those."""
    connection = _say("watch")
    connection.settimeout(None)
    return connection


def orders(connection: socket.socket) -> Iterator[Order]:
    """The agent's orders, until it or the socket ends."""
    while True:
        try:
            line = connection.recv(_LONGEST_LINE)
        except OSError:
            return
        if not line:
            return
        word, _, number = line.decode("utf-8", "replace").partition(" ")
        if word in ("drain", "size") and number.strip().isdecimal():
            yield Order(int(number), None) if word == "drain" else Order(None, int(number))


def _say(line: str) -> socket.socket:
    path = os.environ.get("BELLOWS_POOL_SOCKET")
    if not path:
        raise Unavailable("this program is no member of a pool: there is no $BELLOWS_POOL_SOCKET")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_WAIT_S)
        connection.connect(path)
        connection.send(line.encode())
    except OSError as error:
        connection.close()
        raise Unavailable(f"the member's agent does not answer at {path}: {error}") from error
    return connection
