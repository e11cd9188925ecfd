# SPDX-License-Identifier: Apache-2.0
"""A model that is open: its tensors where they lie in the memory that the node's programs share."""

import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ._lib import Lent, TensorInfo
from .errors import InvalidError, NotFoundError

_NUMPY = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
    "C64": "complex64",
}

#: As arrays of GPUs are described. What is not here goes by its bytes.
_GPU = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "|u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "|b1",
    "C64": "<c8",
}

#: Some of them only newer versions of torch have.
_TORCH = {
    **_NUMPY,
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def numpy_dtype(dtype: str) -> Optional[Any]:
    """numpy's type for one of safetensors; None: it has none."""
    import numpy

    return numpy.dtype(_NUMPY[dtype]) if dtype in _NUMPY else None


def torch_dtype(dtype: str) -> Optional[Any]:
    """torch's type for one of safetensors; None: this version has none."""
    import torch

    return getattr(torch, _TORCH[dtype], None) if dtype in _TORCH else None


class GpuArray:
    """Memory of a GPU for cupy, numba and torch.as_tensor, which stays as long as this object."""

    def __init__(self, lent: Lent, address: int, typestr: str, shape: Tuple[int, ...]) -> None:
        self._lent = lent
        # It can be read and nothing else, but torch takes no array that says so.
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
        }


class Model(Mapping[str, Any]):
    """The tensors of a model by their names, without a copy.

    The memory stays as long as the model is open or one of its arrays or tensors is in use, also in
    processes that were forked. Several threads may use one model.
    """

    def __init__(
        self,
        name: str,
        lent: Lent,
        writable: bool,
        framework: Optional[str],
        gpu: Optional[int] = None,
    ) -> None:
        if framework not in (None, "numpy", "torch"):
            raise InvalidError(f'framework is {framework!r}: it is "numpy" or "torch"')
        self.name = name
        self.writable = writable  #: what is written is this program's own, page by page
        self.gpu = gpu  #: whose memory it is in, by CUDA's number; None: the node's
        self.digest = lent.digest  #: 64 hexadecimal digits, those of the same model everywhere
        self._lent: Optional[Lent] = lent
        self._framework = framework
        self._names: Optional[List[str]] = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives the model back. What was got of it stays as it is as long as it is in use."""
        self._lent = None

    @property
    def closed(self) -> bool:
        return self._lent is None

    def _open(self) -> Lent:
        lent = self._lent
        if lent is None:
            raise InvalidError(f"model {self.name} is closed")
        return lent

    def info(self, name: str) -> TensorInfo:
        """The type, shape and bytes of a tensor. NotFoundError: there is none of this name."""
        found = self._open().find(name)
        if found is None:
            raise NotFoundError(f"model {self.name} has no tensor {name}")
        return found

    def array(self, name: str) -> Any:
        """A tensor as a numpy array, which can only be read unless the model is writable."""
        import numpy

        lent, info = self._open(), self.info(name)
        if self.gpu is not None:
            raise InvalidError(
                f"model {self.name} is on GPU {self.gpu}, where numpy reads nothing: "
                "take tensor() or gpu_array()"
            )
        dtype = numpy_dtype(info.dtype)
        if dtype is None:
            raise InvalidError(
                f"tensor {name} of model {self.name} is of type {info.dtype}, which numpy does not "
                "have: take it as a tensor of torch"
            )
        if info.bytes == 0:
            return numpy.empty(info.shape, dtype)
        memory = memoryview(lent.buffer(info))
        # Else the program could still make it writable, and end by its first write.
        memory = memory if self.writable else memory.toreadonly()
        return numpy.frombuffer(memory, dtype).reshape(info.shape)

    def gpu_array(self, name: str) -> GpuArray:
        """A tensor of a model on a GPU, by __cuda_array_interface__. Types that this does not know,
        such as BF16, are given as bytes. A write to it is an error of CUDA's, which ends all that
        the program does there."""
        lent, info = self._open(), self.info(name)
        if self.gpu is None:
            raise InvalidError(f"model {self.name} is on no GPU: open it with a device")
        typestr = _GPU.get(info.dtype)
        shape = (info.bytes,) if typestr is None else info.shape
        return GpuArray(lent, info.address, typestr or "|u1", shape)

    def tensor(self, name: str) -> Any:
        """A tensor of torch, which has none that can only be read: a write to it ends the program,
        unless the model is writable."""
        import torch

        lent, info = self._open(), self.info(name)
        dtype = torch_dtype(info.dtype)
        if dtype is None:
            raise InvalidError(
                f"tensor {name} of model {self.name} is of type {info.dtype}, which torch "
                f"{torch.__version__} does not have"
            )
        device = "cpu" if self.gpu is None else f"cuda:{self.gpu}"
        if info.bytes == 0:
            return torch.empty(info.shape, dtype=dtype, device=device)
        if self.gpu is not None:
            # Torch takes not all types by this way, and all by their bytes.
            array = GpuArray(lent, info.address, "|u1", (info.bytes,))
            return torch.as_tensor(array, device=device).view(dtype).reshape(info.shape)
        # torch takes a buffer of ctypes for writable, so it has nothing to warn of.
        return torch.frombuffer(lent.buffer(info), dtype=dtype).reshape(info.shape)

    def arrays(self) -> Dict[str, Any]:
        """All tensors as numpy arrays."""
        return {name: self.array(name) for name in self}

    def tensors(self) -> Dict[str, Any]:
        """All tensors as tensors of torch: a state dict."""
        return {name: self.tensor(name) for name in self}

    def load_into(self, module: Any, strict: bool = True) -> None:
        """Gives the parameters of a torch module the model's memory, and copies its buffers.

        With a model on a GPU, all of a module that is on no GPU yet is there afterwards. A module in training writes to its buffers, and its optimizer to its parameters: where the
        model is not writable, parameters require no gradients from then on, so that no optimizer
        touches them. MismatchError names what is missing or has another shape and, if `strict`,
        what the module has no place for; then nothing was changed.
        """
        from .modules import load_into

        load_into(self, module, strict)

    def _names_in_order(self) -> List[str]:
        lent = self._open()
        if self._names is None:
            self._names = [lent.name(index) for index in range(lent.count())]
        return self._names

    def __getitem__(self, name: str) -> Any:
        """An array or a tensor: what open() was asked for, else a tensor where torch is used."""
        uses_torch = self._framework == "torch" or (
            self._framework is None and "torch" in sys.modules
        )
        return self.tensor(name) if uses_torch else self.array(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names_in_order())

    def __len__(self) -> int:
        return self._open().count()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._open().find(name) is not None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} tensors"
        return f"<bellows model {self.name}, {state}>"
