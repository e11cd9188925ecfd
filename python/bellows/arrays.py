# SPDX-License-Identifier: Apache-2.0
"""The memory of arrays of numpy and of buffers. Tensors are in the module tensors."""

import ctypes
import sys
from typing import Any, Optional, Sequence, Tuple

from . import _lib
from .errors import InvalidError
from .regions import Region


_NUMPY_TYPES = {
    "f2": _lib.F16,
    "f4": _lib.F32,
    "f8": _lib.F64,
    "i1": _lib.I8,
    "i2": _lib.I16,
    "i4": _lib.I32,
    "i8": _lib.I64,
    "u1": _lib.U8,
    "u2": _lib.U16,
    "u4": _lib.U32,
    "u8": _lib.U64,
    "b1": _lib.BOOL,
    "c8": _lib.C64,
    "c16": _lib.C128,
    "V1": _lib.BYTES,
    "S1": _lib.BYTES,
}


def _is_c_order(shape: Tuple[int, ...], strides: Tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length == 0:
            return True
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _numpy_dtype(array: Any, typestr: str) -> Optional[int]:
    # The types of the package ml_dtypes are void to the array interface.
    if str(getattr(array, "dtype", "")) == "bfloat16":
        return _lib.BF16
    little = typestr[0] in "|<" or (typestr[0] == "=" and sys.byteorder == "little")
    return _NUMPY_TYPES.get(typestr[1:]) if little else None


def _from_interface(name: str, array: Any) -> Region:
    """numpy's __array_interface__, which other libraries have too; numpy itself isn't imported."""
    interface = array.__array_interface__
    data, read_only = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    dtype = _numpy_dtype(array, interface["typestr"])
    if dtype is None:
        raise InvalidError(
            f"array {name}: the type {getattr(array, 'dtype', interface['typestr'])} cannot be "
            "saved; numbers of 8 to 64 bits in this machine's byte order, complex numbers, bool "
            "and single bytes (V1) can"
        )
    if strides is not None and not _is_c_order(shape, strides, int(interface["typestr"][2:])):
        raise InvalidError(
            f"array {name}: its elements are not contiguous in C order; "
            "register the result of numpy.ascontiguousarray(...) and train on that"
        )
    if read_only:
        raise InvalidError(f"array {name}: it is read-only, so it could not be restored")
    return Region(data, dtype, shape, array)


def numpy_array(dtype: int, shape: Sequence[int], current: Any) -> Any:
    """`current` when it is an array of numpy of this type and shape, else a new one."""
    import numpy

    typestr = next(text for text, number in _NUMPY_TYPES.items() if number == dtype)
    if isinstance(current, numpy.ndarray) and current.dtype.str[1:] == typestr:
        if list(current.shape) == list(shape) and current.flags.c_contiguous:
            return current
    return numpy.empty(shape, dtype=typestr)


_BUFFER_TYPES = {"e": "f2", "f": "f4", "d": "f8", "?": "b1"}


def _from_buffer(name: str, array: Any) -> Region:
    """bytearray, memoryview, array.array and ctypes arrays."""
    view = memoryview(array)
    letter = view.format.lstrip("@<=")
    if letter in "bhilqn":
        dtype = _NUMPY_TYPES[f"i{view.itemsize}"]
    elif letter in "BHILQN":
        dtype = _NUMPY_TYPES[f"u{view.itemsize}"]
    else:
        dtype = _NUMPY_TYPES.get(_BUFFER_TYPES.get(letter, ""), 0)
    if isinstance(array, bytearray) or letter == "c":
        dtype = _lib.BYTES
    if dtype == 0 or view.format[0] == ">":
        raise InvalidError(f"array {name}: elements of the format '{view.format}' cannot be saved")
    if view.readonly or not view.c_contiguous:
        raise InvalidError(f"array {name}: it must be writable, with its elements in C order")
    # The ctypes object holds the buffer, so a bytearray cannot move while it is registered.
    held = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else None
    address = ctypes.addressof(held) if held is not None else 0
    return Region(address, dtype, tuple(view.shape), held)


def is_tensor(array: Any) -> bool:
    """Whether it is a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def region_of(name: str, array: Any) -> Region:
    """The memory of an array or a tensor; InvalidError when it cannot be saved as it is."""
    if is_tensor(array):
        from .tensors import tensor_region

        return tensor_region(name, array)
    if hasattr(array, "__array_interface__"):
        return _from_interface(name, array)
    try:
        return _from_buffer(name, array)
    except TypeError:
        raise InvalidError(
            f"array {name}: a {type(array).__name__} is not an array; a tensor of PyTorch, an "
            "array of numpy or a writable buffer is"
        ) from None
