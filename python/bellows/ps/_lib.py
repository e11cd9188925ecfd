# SPDX-License-Identifier: Apache-2.0
"""libbellows_ps through ctypes: bellows_ps.h, line for line, and errors as exceptions."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Optional, Sequence

from .._lib import load_library
from .errors import error_for

# enum bellows_ps_rule
SGD, MOMENTUM, ADAGRAD, ADAM, RMSPROP = range(5)

# enum bellows_ps_schedule
CONSTANT, STEP, COSINE = range(3)

#: enum bellows_ps_type, by torch's names.
GRADIENT_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}


class Group(ctypes.Structure):
    """struct bellows_ps_group"""

    _fields_ = [("rate", c_double), ("weight_decay", c_double)]


class Config(ctypes.Structure):
    """struct bellows_ps_config"""

    _fields_ = [
        ("size", c_size_t),
        ("socket", c_char_p),
        ("wait_ms", c_int32),
        ("rule", c_int32),
        ("gradient_type", c_int32),
        ("nesterov", c_int32),
        ("decoupled", c_int32),
        ("rate", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("weight_decay", c_double),
        ("clip_value", c_double),
        ("initial_state", c_double),
        ("schedule", c_int32),
        ("groups", c_uint32),
        ("group", POINTER(Group)),
        ("group_of", POINTER(c_uint32)),
        ("warm_up", c_uint64),
        ("period", c_uint64),
        ("factor", c_double),
        ("lowest", c_double),
        ("clip_norm", c_double),
        ("width", POINTER(c_uint64)),
    ]


_SIGNATURES = {
    "bellows_ps_join": (
        c_int,
        [POINTER(Config), POINTER(c_uint64), POINTER(c_void_p), c_size_t, POINTER(c_void_p)],
    ),
    "bellows_ps_learner": (c_uint32, [c_void_p]),
    "bellows_ps_pull": (c_int, [c_void_p]),
    "bellows_ps_weights": (c_void_p, [c_void_p, c_size_t]),
    "bellows_ps_updates": (c_uint64, [c_void_p]),
    "bellows_ps_begin": (c_int, [c_void_p]),
    "bellows_ps_gradient": (c_void_p, [c_void_p, c_size_t]),
    "bellows_ps_gradient_rows": (c_int, [c_void_p, c_size_t, c_void_p, c_size_t]),
    "bellows_ps_push": (c_int, [c_void_p, c_float]),
    "bellows_ps_drain": (c_int, [c_void_p]),
    "bellows_ps_gradient_from_device": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "bellows_ps_weights_to_device": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "bellows_ps_unpinned": (c_char_p, [c_void_p]),
    "bellows_ps_error": (c_char_p, [c_void_p]),
    "bellows_ps_leave": (c_int, [c_void_p]),
}

_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded at its first use."""
    global _loaded
    if _loaded is None:
        _loaded = load_library("BELLOWS_PS_LIBRARY", "libbellows_ps.so.0", _SIGNATURES)
    return _loaded


class Learner:
    """A bellows_ps_t. All that shows its memory refers to it, and its end leaves the others."""

    def __init__(self, config: Config, counts: Sequence[int], initial: Sequence[int]) -> None:
        """`initial`: where the first weights of each tensor are."""
        self._handle = c_void_p()
        self._pid = os.getpid()
        # At the interpreter's end this module may be gone before the last tensor.
        self._library = library()
        self._leave = self._library.bellows_ps_leave
        self._own_pid = os.getpid
        config.size = ctypes.sizeof(Config)
        number = len(counts)
        self._check(
            self._library.bellows_ps_join(
                byref(config),
                (c_uint64 * number)(*counts),
                (c_void_p * number)(*initial),
                number,
                byref(self._handle),
            )
        )

    def __del__(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        # A process that was forked has the memory too, and is no learner.
        if handle and self._own_pid() == self._pid:
            self._leave(handle)

    def _check(self, code: int) -> None:
        if code < 0:
            sentence = self._library.bellows_ps_error(self._handle) or b""
            raise error_for(code, sentence.decode(errors="replace"))

    @property
    def number(self) -> int:
        return self._library.bellows_ps_learner(self._handle)

    @property
    def updates(self) -> int:
        return self._library.bellows_ps_updates(self._handle)

    def pull(self) -> None:
        self._check(self._library.bellows_ps_pull(self._handle))

    def begin(self) -> None:
        self._check(self._library.bellows_ps_begin(self._handle))

    def push(self, scale: float) -> None:
        self._check(self._library.bellows_ps_push(self._handle, scale))

    def drain(self) -> None:
        self._check(self._library.bellows_ps_drain(self._handle))

    def weights(self, tensor: int) -> int:
        """The address of a tensor's weights, after a pull."""
        return self._library.bellows_ps_weights(self._handle, tensor)

    def gradient(self, tensor: int) -> int:
        """The address of a tensor's gradient, after begin."""
        return self._library.bellows_ps_gradient(self._handle, tensor)

    def gradient_rows(self, tensor: int, rows: Optional[int], count: int) -> None:
        """Names the rows of a tensor's gradient: so many c_uint64 at an address."""
        self._check(self._library.bellows_ps_gradient_rows(self._handle, tensor, rows, count))

    def gradient_from_device(self, tensor: int, address: int, stream: int) -> None:
        """Asks for the copy of a tensor's gradient from there, in a cudaStream_t."""
        self._check(
            self._library.bellows_ps_gradient_from_device(self._handle, tensor, address, stream)
        )

    def weights_to_device(self, tensor: int, address: int, stream: int) -> None:
        """Asks for the copy of a tensor's weights to there, in a cudaStream_t."""
        self._check(
            self._library.bellows_ps_weights_to_device(self._handle, tensor, address, stream)
        )

    @property
    def unpinned(self) -> str:
        """Why copies are slower than they could be; "" otherwise."""
        return self._library.bellows_ps_unpinned(self._handle).decode(errors="replace")

    def buffer(self, address: int, size: int) -> ctypes.Array:
        """The memory there, which stays as long as the buffer does."""
        memory = (ctypes.c_ubyte * size).from_address(address)
        memory.learner = self
        return memory
