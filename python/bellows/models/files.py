# SPDX-License-Identifier: Apache-2.0
"""safetensors files, without the package of this name: their headers, and whole files in numpy."""

import json
import os
import stat
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Tuple

from ._lib import DTYPES
from .errors import CorruptError, InvalidError

_MOST_HEADER = 100_000_000


class Entry(NamedTuple):
    """A tensor, as the header has it."""

    dtype: str
    shape: Tuple[int, ...]
    begin: int  #: in the data
    end: int


class Header(NamedTuple):
    entries: Dict[str, Entry]
    metadata: Optional[Dict[str, str]]  #: None: it has none
    data: int  #: where the data begin in the file


def _entry(path: str, name: str, value: Any) -> Entry:
    try:
        begin, end = value["data_offsets"]
        entry = Entry(value["dtype"], tuple(value["shape"]), begin, end)
        numbers = (*entry.shape, begin, end)
        sound = all(type(number) is int and number >= 0 for number in numbers) and begin <= end
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise CorruptError(f"{path} is no safetensors file: its tensor {name} makes no sense")
    return entry


def parse_header(file: BinaryIO, path: str) -> Header:
    """The header of an open file, whose position is at its begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, _MOST_HEADER):
        raise CorruptError(f"{path} is no safetensors file: its header does not end in it")
    try:
        value = json.loads(file.read(length))
    except ValueError as error:
        raise CorruptError(f"{path} is no safetensors file: {error}") from error
    if not isinstance(value, dict):
        raise CorruptError(f"{path} is no safetensors file: its header is no object")
    metadata = value.pop("__metadata__", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise CorruptError(f"{path} is no safetensors file: its metadata are no object")
    entries = {name: _entry(path, name, each) for name, each in value.items()}
    if any(entry.end > size - 8 - length for entry in entries.values()):
        raise CorruptError(f"{path} is no safetensors file: its tensors do not end in it")
    return Header(entries, metadata, 8 + length)


def open_plain(path: str) -> BinaryIO:
    """A plain file, open for reading; whoever puts a FIFO there must not make us wait."""
    file = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InvalidError(f"{path} is not a plain file")
    return file


def read_header(path: str) -> Header:
    with open_plain(path) as file:
        return parse_header(file, path)


def read_file(path: str) -> Dict[str, Any]:
    """All tensors of a safetensors file as numpy arrays of their own, without the model store.

    InvalidError: one is of a type that numpy does not have.
    """
    import numpy

    from .model import numpy_dtype

    arrays = {}
    with open_plain(path) as file:
        header = parse_header(file, path)
        for name, entry in sorted(header.entries.items()):
            dtype = numpy_dtype(entry.dtype)
            if dtype is None:
                raise InvalidError(
                    f"tensor {name} of {path} is of type {entry.dtype}, which numpy does not have"
                )
            file.seek(header.data + entry.begin)
            array = numpy.frombuffer(bytearray(file.read(entry.end - entry.begin)), dtype)
            if array.size != numpy.prod(entry.shape, dtype=object):
                raise CorruptError(f"{path}: tensor {name} does not have the bytes of its shape")
            arrays[name] = array.reshape(entry.shape)
    return arrays


def write_file(
    path: str, tensors: List[Tuple[str, str, Tuple[int, ...], Any]], metadata: Dict[str, str]
) -> None:
    """Writes (name, type, shape, bytes) to a new file, which appears when it is complete."""
    # The widest first, so that each begins at a multiple of its elements' size.
    width = {"64": 8, "32": 4, "16": 2}
    ordered = sorted(tensors, key=lambda t: (-width.get(t[1][-2:], 1), t[0]))
    header: Dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, dtype, shape, data in ordered:
        if dtype not in DTYPES:
            raise InvalidError(f"tensor {name}: there is no type {dtype}")
        end = at + memoryview(data).nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, _, _, data in ordered:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
