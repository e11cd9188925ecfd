# SPDX-License-Identifier: Apache-2.0
"""Models that this node holds once, for all programs that may see them: see python/README.md."""

import math
import os
import re
import sys
from typing import Any, Callable, Optional

from . import _lib
from ._lib import TensorInfo
from .converted import convert
from .errors import (
    CancelledError,
    CorruptError,
    InvalidError,
    MismatchError,
    ModelError,
    NoRoomError,
    NotFoundError,
    OutOfMemoryError,
    UnavailableError,
)
from .files import read_file
from .model import Model

__all__ = [
    "CancelledError",
    "CorruptError",
    "InvalidError",
    "MismatchError",
    "Model",
    "ModelError",
    "NoRoomError",
    "NotFoundError",
    "OutOfMemoryError",
    "TensorInfo",
    "UnavailableError",
    "convert",
    "open",
    "prefetch",
    "read_file",
]


def _wait_ms(wait: Optional[float]) -> int:
    if wait is None:
        return 0
    if math.isinf(wait) and wait > 0:
        return -1
    # 0 has another meaning for the library.
    return min(max(1, int(wait * 1000)), 2**31 - 1)


def _gpu_of(device: Any) -> Optional[int]:
    """CUDA's number of a device as torch writes it; None: it is no GPU."""
    text = str(device)
    if device is None or text == "cpu":
        return None
    if text == "cuda":
        return sys.modules["torch"].cuda.current_device() if "torch" in sys.modules else 0
    number = re.fullmatch(r"cuda:(\d{1,4})", text)
    if number is None:
        raise InvalidError(f'device is {text!r}: it is "cpu", "cuda" or "cuda:N"')
    return int(number[1])


def open(
    name: str,
    *,
    device: Any = None,
    writable: bool = False,
    framework: Optional[str] = None,
    wait: Optional[float] = None,
    progress: Optional[Callable[[int, int], None]] = None,
    socket: Optional[str] = None,
) -> Model:
    """Opens a model of the node's model store by its name, by "sha256:" and its digest, or by
    "file:" and the absolute path of a file that it is read from.

    Its memory is shared by all who have it open, and can only be read. `device` is "cuda:N" where
    the tensors are to be in the memory of a GPU, in the one copy of all programs of the job; the
    job needs sbatch --model-on=gpu. If `writable`, this program
    may write to it: it gets its own copy of each page that it writes to. `framework` is "numpy" or
    "torch" and says what model[name] gives; by default tensors if the program has imported torch.
    `wait` is how many seconds the model may take to load, ten minutes by default. Meanwhile
    `progress` is called, a few times a second, with the bytes that are read and the bytes that
    there are (0: not known yet); what it raises ends the wait. Errors are subclasses of ModelError.
    """
    gpu = _gpu_of(device)
    lent = _lib.open_model(os.fspath(name), socket, _wait_ms(wait), writable, progress, gpu)
    return Model(name, lent, writable, framework, gpu)


def prefetch(name: str, *, socket: Optional[str] = None) -> None:
    """Has a model loaded, without waiting for it."""
    _lib.prefetch_model(os.fspath(name), socket)
