# SPDX-License-Identifier: Apache-2.0
"""What can be registered: an array's place in memory, its type and its shape."""

import ctypes
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional, Tuple

from . import _lib
from .errors import InvalidError


@dataclass(frozen=True)
class Shard:
    """This rank's part of an array that is cut along one axis.

    The registered array is the part: along `axis` it holds the elements first, first + 1, ... of
    `total`; its other axes are whole. Parts may have any length, also none, as long as the ranks
    together hold every element once.
    """

    axis: int
    first: int
    total: int


@dataclass(frozen=True)
class Region:
    """Memory that a save reads and a restore fills, as it is described to the library."""

    data: int  #: address, on the host or a GPU; 0 when there are no elements
    dtype: int  #: enum bellows_dtype
    shape: Tuple[int, ...]  #: of what this rank holds
    keep: Any  #: what owns the memory
    layout: int = _lib.REPLICATED
    shard: Optional[Shard] = None
    before_save: Optional[Callable[[], None]] = None  #: brings the memory up to date
    after_restore: Optional[Callable[[], None]] = None  #: hands on what came into the memory
    device: Optional[Any] = None  #: the CUDA device whose memory it is
    ours: bool = False  #: the memory is a copy that the package made

    def same_place(self, other: "Region") -> bool:
        """Whether the library knows all of this region when it knows the other."""
        return self.data == other.data and self.same_kind(other)

    def same_kind(self, other: "Region") -> bool:
        """Whether only their memory may differ."""
        mine = (self.dtype, self.shape, self.layout, self.shard)
        return mine == (other.dtype, other.shape, other.layout, other.shard)


def sharded(name: str, region: Region, shard: Shard) -> Region:
    """The region as this rank's part of a larger array."""
    if not 0 <= shard.axis < len(region.shape):
        raise InvalidError(
            f"array {name}: axis {shard.axis} does not exist, it has {len(region.shape)} axes"
        )
    end = shard.first + region.shape[shard.axis]
    if shard.first < 0 or end > shard.total:
        raise InvalidError(
            f"array {name}: {region.shape[shard.axis]} elements from {shard.first} on extend past "
            f"the {shard.total} of axis {shard.axis}"
        )
    return replace(region, layout=_lib.SHARDED, shard=shard)


def per_rank(region: Region) -> Region:
    """The region as an array of which each rank has its own."""
    return replace(region, layout=_lib.PER_RANK)


def register(handle: _lib.Handle, name: str, region: Region) -> None:
    """Registers the region with the library."""
    # Without the runtime the library would take the address for one of the host.
    if region.device is not None and not handle.has_cuda():
        raise InvalidError(
            f"array {name}: it is on {region.device}, and no libcudart is loaded to copy it from "
            "there: Bellows needs the CUDA runtime as a shared library"
        )
    shape, axis, first, count = list(region.shape), 0, 0, 0
    if region.shard is not None:
        axis, first = region.shard.axis, region.shard.first
        count = shape[axis]
        shape[axis] = region.shard.total
    handle.register(name, region.dtype, shape, region.layout, region.data, axis, first, count)


def value(number: Any) -> Region:
    """A copy of a bool, int of 64 bits or float, kept as a value; `keep.value` is the number."""
    if isinstance(number, bool):
        dtype, held = _lib.BOOL, ctypes.c_bool(number)
    elif isinstance(number, int):
        dtype, held = _lib.I64, ctypes.c_int64(number)
    else:
        dtype, held = _lib.F64, ctypes.c_double(number)
    return Region(ctypes.addressof(held), dtype, (), held, layout=_lib.VALUE, ours=True)


def stored_bytes(content: bytes, layout: int = _lib.REPLICATED) -> Region:
    """A copy of some bytes; `keep.raw` are the bytes."""
    held = ctypes.create_string_buffer(content, len(content))
    return Region(
        ctypes.addressof(held), _lib.BYTES, (len(content),), held, layout=layout, ours=True
    )
