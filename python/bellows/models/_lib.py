# SPDX-License-Identifier: Apache-2.0
"""libbellows_model through ctypes: bellows_model.h, line for line, and errors as exceptions."""

import ctypes
import threading
import time
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_int, c_int32, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Callable, NamedTuple, Optional, Tuple

from .._lib import load_library
from .errors import UnavailableError, error_for

WRITABLE = 1
ON_GPU = 2
#: How long a model that is in memory takes at most.
_SOON_MS = 250

#: enum bellows_model_dtype, by the names that safetensors files have.
DTYPES = {
    "F16": 1,
    "BF16": 2,
    "F32": 3,
    "F64": 4,
    "I8": 5,
    "I16": 6,
    "I32": 7,
    "I64": 8,
    "U8": 9,
    "U16": 10,
    "U32": 11,
    "U64": 12,
    "BOOL": 13,
    "C64": 14,
    "F8_E4M3": 32,
    "F8_E5M2": 33,
    "F8_E8M0": 34,
    "F6_E2M3": 35,
    "F6_E3M2": 36,
    "F4": 37,
}
_NAMES = {number: name for name, number in DTYPES.items()}

_Progress = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class Config(ctypes.Structure):
    """struct bellows_model_config"""

    _fields_ = [
        ("size", c_size_t),
        ("socket", c_char_p),
        ("wait_ms", c_int32),
        ("unused", c_int32),
        ("progress", _Progress),
        ("argument", c_void_p),
        ("flags", c_uint32),
        ("device", c_int32),
    ]


class Record(ctypes.Structure):
    """struct bellows_tensor"""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("dtype", c_int32),
        ("ndims", c_int32),
        ("shape", POINTER(c_uint64)),
        ("bytes", c_uint64),
        ("data", c_void_p),
    ]


_SIGNATURES = {
    "bellows_model_open": (c_int, [c_char_p, POINTER(Config), POINTER(c_void_p)]),
    "bellows_model_prefetch": (c_int, [c_char_p, POINTER(Config), POINTER(c_void_p)]),
    "bellows_model_count": (c_uint64, [c_void_p]),
    "bellows_model_tensor": (c_int, [c_void_p, c_uint64, POINTER(Record)]),
    "bellows_model_find": (c_int, [c_void_p, c_char_p, POINTER(Record)]),
    "bellows_model_digest": (c_char_p, [c_void_p]),
    "bellows_model_error": (c_char_p, [c_void_p]),
    "bellows_model_close": (None, [c_void_p]),
}

_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded at its first use."""
    global _loaded
    if _loaded is None:
        _loaded = load_library("BELLOWS_MODEL_LIBRARY", "libbellows_model.so.0", _SIGNATURES)
    return _loaded


class TensorInfo(NamedTuple):
    """What a tensor is."""

    dtype: str  #: as safetensors files have it: "BF16"
    shape: Tuple[int, ...]
    bytes: int
    address: int


class Lent:
    """A bellows_model_t. All that shows its memory refers to it, and its end gives that back."""

    def __init__(self, handle: c_void_p) -> None:
        # At the interpreter's end this module may be gone before the last tensor.
        self._close = library().bellows_model_close
        self._handle: Optional[c_void_p] = handle
        self.digest = (library().bellows_model_digest(handle) or b"").decode()

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._close(handle)

    def count(self) -> int:
        return library().bellows_model_count(self._handle)

    def name(self, index: int) -> str:
        record = Record(ctypes.sizeof(Record))
        library().bellows_model_tensor(self._handle, index, byref(record))
        return record.name.decode(errors="surrogateescape")

    def find(self, name: str) -> Optional[TensorInfo]:
        record = Record(ctypes.sizeof(Record))
        wanted = name.encode(errors="surrogateescape")
        # What has a zero inside would find what ends there.
        if b"\0" in wanted or library().bellows_model_find(self._handle, wanted, byref(record)) < 0:
            return None
        shape = tuple(record.shape[i] for i in range(record.ndims))
        return TensorInfo(_NAMES.get(record.dtype, "?"), shape, record.bytes, record.data or 0)

    def buffer(self, info: TensorInfo) -> ctypes.Array:
        """The memory of a tensor, which stays as long as the buffer does."""
        memory = (ctypes.c_ubyte * info.bytes).from_address(info.address)
        memory.lent = self
        return memory


class _Call:
    """One call of bellows_model_open."""

    def __init__(self, name: bytes, config: Config) -> None:
        self._name = name
        self._config = config
        self.code = 0
        self.handle = c_void_p()

    def run(self) -> None:
        self.code = library().bellows_model_open(
            self._name, byref(self._config), byref(self.handle)
        )

    def taken(self) -> c_void_p:
        """The open model; else the exception."""
        if self.code < 0:
            raise _failure(self.code, self.handle)
        return self.handle


class _WatchedCall(_Call):
    """One that another thread waits for."""

    def __init__(self, name: bytes, config: Config) -> None:
        super().__init__(name, config)
        self.bytes = (0, 0)  #: read, and in all
        self.give_up = False
        self.ended = threading.Event()
        # Kept: the library calls it.
        self._callback = _Progress(self._told)
        config.progress = self._callback

    def _told(self, argument: Optional[int], done: int, total: int) -> int:
        self.bytes = (done, total)
        return int(self.give_up)

    def run(self) -> None:
        super().run()
        self.ended.set()


def _config(socket: Optional[bytes], wait_ms: int, flags: int, device: int = 0) -> Config:
    return Config(ctypes.sizeof(Config), socket, wait_ms, 0, _Progress(), None, flags, device)


def _load_driver() -> None:
    """As the first call of CUDA does. Without a driver the library says what is wrong."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass


def _failure(code: int, handle: c_void_p) -> Exception:
    sentence = (library().bellows_model_error(handle) or b"").decode(errors="replace")
    library().bellows_model_close(handle)
    return error_for(code, sentence)


def _run_watched(call: _WatchedCall, progress: Optional[Callable[[int, int], None]]) -> None:
    """Waits in another thread, so that signals and `progress` may raise here meanwhile."""
    thread = threading.Thread(target=call.run, name="bellows-model", daemon=True)
    thread.start()
    told = False
    try:
        while not call.ended.wait(_SOON_MS / 1000):
            if progress is not None:
                progress(*call.bytes)
                told = True
        thread.join()
        if told and call.code == 0:
            progress(*call.bytes)
    except BaseException:
        call.give_up = True
        thread.join()
        library().bellows_model_close(call.handle)
        raise


def open_model(
    name: str,
    socket: Optional[str],
    wait_ms: int,
    writable: bool,
    progress: Optional[Callable[[int, int], None]],
    gpu: Optional[int] = None,
) -> Lent:
    """Opens a model, on a GPU by CUDA's number or in memory. The callable gets the bytes that are
    read and all bytes, in this thread."""
    encoded = name.encode(errors="surrogateescape")
    if b"\0" in encoded:
        raise error_for(-1, f"no model can have the name {name!r}")
    path = None if socket is None else socket.encode(errors="surrogateescape")
    flags = (WRITABLE if writable else 0) | (0 if gpu is None else ON_GPU)
    if gpu is not None:
        _load_driver()
    device = gpu or 0
    # What is in memory needs no thread. In this one no signal is looked at meanwhile, and an
    # exception of its handler would be lost in a callback.
    soon = _SOON_MS if wait_ms <= 0 else min(_SOON_MS, wait_ms)
    begin = time.monotonic()
    call = _Call(encoded, _config(path, soon, flags, device))
    call.run()
    in_time = time.monotonic() - begin < soon / 1000
    if call.code != UnavailableError.code or in_time or soon == wait_ms:
        return Lent(call.taken())
    library().bellows_model_close(call.handle)
    left = wait_ms - soon if wait_ms > 0 else wait_ms
    watched = _WatchedCall(encoded, _config(path, left, flags, device))
    _run_watched(watched, progress)
    return Lent(watched.taken())


def prefetch_model(name: str, socket: Optional[str]) -> None:
    path = None if socket is None else socket.encode(errors="surrogateescape")
    failed = c_void_p()
    config = _config(path, 0, 0)
    code = library().bellows_model_prefetch(
        name.encode(errors="surrogateescape"), byref(config), byref(failed)
    )
    if code < 0:
        raise _failure(code, failed)
