# SPDX-License-Identifier: Apache-2.0
"""libbellows through ctypes: bellows.h, line for line, and errors as exceptions."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint64, c_void_p
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .errors import Error, error_for

NO_CHECKPOINT = 1

# enum bellows_dtype
F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, C64, C128, BYTES = range(1, 17)

# enum bellows_layout
REPLICATED, SHARDED, PER_RANK, VALUE = range(4)


class Config(ctypes.Structure):
    """struct bellows_config"""

    _fields_ = [
        ("size", c_size_t),
        ("dir", c_char_p),
        ("rank", c_int32),
        ("world", c_int32),
        ("keep", c_int32),
        ("keep_every", c_uint64),
    ]


class Array(ctypes.Structure):
    """struct bellows_array"""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_int32),
        ("ndims", c_int32),
        ("shape", POINTER(c_uint64)),
        ("layout", c_int32),
        ("axis", c_int32),
        ("first", c_uint64),
        ("count", c_uint64),
        ("data", c_void_p),
    ]


_SIGNATURES = {
    "bellows_init": (c_int, [POINTER(Config), POINTER(c_void_p)]),
    "bellows_register_array": (c_int, [c_void_p, POINTER(Array)]),
    "bellows_unregister": (c_int, [c_void_p, c_char_p]),
    "bellows_restore": (c_int, [c_void_p, POINTER(c_uint64)]),
    "bellows_save": (c_int, [c_void_p, c_uint64]),
    "bellows_save_async": (c_int, [c_void_p, c_uint64]),
    "bellows_wait": (c_int, [c_void_p]),
    "bellows_saved_step": (c_int, [c_void_p, POINTER(c_uint64)]),
    "bellows_memory": (c_int, [c_void_p, POINTER(c_uint64), POINTER(c_uint64)]),
    "bellows_should_stop": (c_int, [c_void_p, c_uint64]),
    "bellows_batch": (c_int, [c_void_p, c_uint64, POINTER(c_uint64)]),
    "bellows_noise_scale": (c_int, [c_void_p, c_double]),
    "bellows_finalize": (c_int, [c_void_p, c_int]),
    "bellows_rank": (c_int, [c_void_p]),
    "bellows_world": (c_int, [c_void_p]),
    "bellows_error": (c_char_p, [c_void_p]),
    "bellows_error_step": (c_int, [c_void_p, POINTER(c_uint64)]),
    "bellows_strerror": (c_char_p, [c_int]),
    "bellows_version": (c_char_p, []),
    "bellows_permutation": (
        c_int,
        [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)],
    ),
}


def _candidates(variable: str, name: str) -> List[str]:
    named = os.environ.get(variable)
    if named:
        return [named]
    found = []
    try:
        from ._installed import LIBDIR

        found.append(os.path.join(LIBDIR, name))
    except ImportError:
        pass  # runs from the sources
    return [path for path in found if os.path.exists(path)] + [name]


def load_library(variable: str, name: str, signatures: Dict[str, Tuple]) -> ctypes.CDLL:
    """The library of this file name, or that which the variable of the environment names."""
    path = _candidates(variable, name)[0]
    try:
        library = ctypes.CDLL(path)
        for each, (result, arguments) in signatures.items():
            function = getattr(library, each)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise Error(
            f"{name.split('.')[0]} cannot be used: {error}; install bellows, or name the {name} that "
            f"comes with this package in {variable}"
        ) from error
    return library


def has_cuda_runtime() -> bool:
    """Whether the library finds the CUDA runtime, which it looks for among what is loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any("/libcudart" in line for line in maps)


_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded at its first use, so that importing the package needs nothing."""
    global _loaded
    if _loaded is None:
        _loaded = load_library("BELLOWS_LIBRARY", "libbellows.so.0", _SIGNATURES)
    return _loaded


def permutation(seed: int, epoch: int, samples: int, first: int, count: int) -> List[int]:
    """Positions first to first + count - 1 of the epoch's order of `samples` samples."""
    out = (c_uint64 * count)()
    code = library().bellows_permutation(seed, epoch, samples, first, count, out)
    if code < 0:
        raise error_for(
            code, f"positions {first} to {first + count - 1} of {samples} samples do not exist"
        )
    return list(out)


class Memory(NamedTuple):
    """Bytes on this node."""

    needed: int  #: for the two copies of what this rank has registered
    available: int  #: that this rank may use


class Handle:
    """A bellows_t. Every method raises bellows.Error with the library's message."""

    def __init__(
        self,
        dir: Optional[str],
        rank: Optional[int],
        world: Optional[int],
        keep: Optional[int],
        keep_every: int,
    ) -> None:
        self._handle: Optional[c_void_p] = None
        self._cuda = False
        self._library = library()
        config = Config(
            ctypes.sizeof(Config),
            os.fsencode(dir) if dir is not None else None,
            -1 if rank is None else rank,
            -1 if world is None else world,
            0 if keep is None else keep,
            keep_every,
        )
        handle = c_void_p()
        code = self._library.bellows_init(byref(config), byref(handle))
        self._handle = handle
        try:
            self._check(code)
        except Error:
            self.finalize(False)
            raise

    def _check(self, code: int) -> int:
        if self._handle is None:
            raise error_for(-1, "the Checkpoint is closed")
        if code < 0:
            text = self._library.bellows_error(self._handle) or b""
            error = error_for(
                code, (text or self._library.bellows_strerror(code)).decode(errors="replace")
            )
            step = c_uint64()
            if self._library.bellows_error_step(self._handle, byref(step)) == 1:
                error.failed_step = step.value
            raise error
        return code

    @property
    def rank(self) -> int:
        return self._library.bellows_rank(self._handle)

    @property
    def world(self) -> int:
        return self._library.bellows_world(self._handle)

    def has_cuda(self) -> bool:
        """Whether arrays may be on a CUDA device."""
        self._cuda = self._cuda or has_cuda_runtime()
        return self._cuda

    def register(
        self,
        name: str,
        dtype: int,
        shape: Sequence[int],
        layout: int,
        data: int,
        axis: int = 0,
        first: int = 0,
        count: int = 0,
    ) -> None:
        """`data` is an address, of the host or of a GPU; `shape` is that of the whole array."""
        array = Array(
            ctypes.sizeof(Array),
            name.encode(errors="replace"),
            dtype,
            len(shape),
            (c_uint64 * len(shape))(*shape),
            layout,
            axis,
            first,
            count,
            data,
        )
        self._check(self._library.bellows_register_array(self._handle, byref(array)))

    def unregister(self, name: str) -> None:
        self._check(self._library.bellows_unregister(self._handle, name.encode()))

    def _step_of(self, function: str) -> Optional[int]:
        step = c_uint64()
        code = self._check(getattr(self._library, function)(self._handle, byref(step)))
        return None if code == NO_CHECKPOINT else step.value

    def restore(self) -> Optional[int]:
        return self._step_of("bellows_restore")

    def saved_step(self) -> Optional[int]:
        return self._step_of("bellows_saved_step")

    def save(self, step: int, wait: bool) -> None:
        call = self._library.bellows_save if wait else self._library.bellows_save_async
        self._check(call(self._handle, step))

    def wait(self) -> None:
        self._check(self._library.bellows_wait(self._handle))

    def memory(self) -> Memory:
        needed, available = c_uint64(), c_uint64()
        self._check(self._library.bellows_memory(self._handle, byref(needed), byref(available)))
        return Memory(needed.value, available.value)

    def should_stop(self, step: int) -> bool:
        return self._check(self._library.bellows_should_stop(self._handle, step)) == 1

    def batch(self, own: int) -> int:
        batch = c_uint64()
        self._check(self._library.bellows_batch(self._handle, own, byref(batch)))
        return batch.value

    def noise_scale(self, samples: float) -> None:
        self._check(self._library.bellows_noise_scale(self._handle, samples))

    @property
    def closed(self) -> bool:
        return self._handle is None

    def abandon(self) -> None:
        """Leaves a training that is not finished, whatever happens."""
        try:
            self.finalize(False)
        except Error:
            pass  # the program has its own trouble, or ends

    def finalize(self, finished: bool) -> None:
        """Frees the handle, also when it fails; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        code = self._library.bellows_finalize(handle, int(finished))
        if code < 0:
            raise error_for(code, self._library.bellows_strerror(code).decode())
