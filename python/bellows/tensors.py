# SPDX-License-Identifier: Apache-2.0
"""The memory of tensors of PyTorch. Imported only where the program has imported torch."""

from typing import Any, List, Optional

import torch

from . import _lib
from .errors import InvalidError
from .regions import Region

_DTYPES = {
    torch.float16: _lib.F16,
    torch.bfloat16: _lib.BF16,
    torch.float32: _lib.F32,
    torch.float64: _lib.F64,
    torch.int8: _lib.I8,
    torch.int16: _lib.I16,
    torch.int32: _lib.I32,
    torch.int64: _lib.I64,
    torch.uint8: _lib.U8,
    torch.bool: _lib.BOOL,
    torch.complex64: _lib.C64,
    torch.complex128: _lib.C128,
}
_FROM_DTYPE = {number: dtype for dtype, number in _DTYPES.items()}


def tensor_region(name: str, tensor: torch.Tensor) -> Region:
    """The memory of a tensor, on the host or a CUDA device.

    A tensor whose elements do not lie in C order, such as one in channels_last, is saved and
    restored through a copy that does.
    """
    tensor = tensor.detach()
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidError(
            f"array {name}: a tensor of type {tensor.dtype} and layout {tensor.layout} cannot be "
            "saved; dense tensors of the usual types can, others as a view of torch.uint8"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidError(
            f"array {name}: it is on {tensor.device}; memory of the host and of CUDA can be saved"
        )
    device = tensor.device if tensor.device.type == "cuda" else None
    shape = tuple(tensor.shape)
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return Region(tensor.data_ptr(), dtype, shape, tensor, device=device)
    copy = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    return Region(
        copy.data_ptr(),
        dtype,
        shape,
        copy,
        device=device,
        before_save=lambda: _copy(copy, tensor),
        after_restore=lambda: _copy(tensor, copy),
    )


def _copy(to: torch.Tensor, of: torch.Tensor) -> None:
    with torch.no_grad():
        to.copy_(of)


def synchronize(devices: Any) -> None:
    """Waits for what was launched: the library reads GPU memory on a stream of its own."""
    for device in devices:
        torch.cuda.synchronize(device)


def new_tensor(dtype: int, shape: List[int], device: Any) -> torch.Tensor:
    """An uninitialised tensor of a BELLOWS_ type."""
    return torch.empty(shape, dtype=_FROM_DTYPE[dtype], device=device)


def fitting(current: Any, dtype: int, shape: List[int]) -> Optional[torch.Tensor]:
    """The tensor itself when it has this type and shape."""
    if not isinstance(current, torch.Tensor):
        return None
    fits = (_DTYPES.get(current.dtype), list(current.shape)) == (dtype, shape)
    return current.detach() if fits else None


def gpu(device: Any) -> Any:
    """Where to put what was on a GPU: `device`, by default the current GPU, else the host."""
    if device is not None:
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"
