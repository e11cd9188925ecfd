# SPDX-License-Identifier: Apache-2.0
"""State dicts that torch.save wrote, as safetensors files that the model store can hold."""

import collections
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from .errors import InvalidError
from .files import Header, write_file
from .model import Model

_KEY = "bellows.torch_load"
_TICK_S = 0.02


def _state_of(path: str) -> Dict[str, int]:
    stat = os.stat(path)
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _settled_state(path: str) -> Dict[str, int]:
    """A change within one tick of the file system's clock leaves no trace in the file's time."""
    state = _state_of(path)
    age = time.time() - state["mtime_ns"] / 1e9
    if 0 <= age < _TICK_S:
        time.sleep(_TICK_S)
        state = _state_of(path)
    return state


def _dtype_name(dtype: Any) -> Optional[str]:
    from .model import _TORCH, torch_dtype

    return next((name for name in _TORCH if torch_dtype(name) is dtype), None)


def _check_tensor(path: str, name: Any, value: Any) -> None:
    import torch

    def refuse(why: str) -> None:
        raise InvalidError(f"{path} cannot be converted: {why}")

    if not isinstance(name, str):
        refuse(f"its key {name!r} is no string")
    if type(value) is not torch.Tensor:
        refuse(f"{name} is a {type(value).__name__}, and only a flat state dict of tensors can be")
    if value.layout != torch.strided or value.is_quantized or not value.is_contiguous():
        refuse(f"tensor {name} is not dense and in C order")
    if value.requires_grad:
        refuse(f"tensor {name} requires a gradient")
    if _dtype_name(value.dtype) is None:
        refuse(f"tensor {name} is of type {value.dtype}, which safetensors files do not have")


def _without_aliases(path: str, state: Dict[str, Any]) -> Tuple[List[str], Dict[str, str]]:
    """The names of tensors that have memory of their own, and for each other one which it is."""
    own: List[str] = []
    aliases: Dict[str, str] = {}
    by_place: Dict[Tuple, str] = {}
    ends: List[Tuple[int, int, str]] = []
    for name, tensor in state.items():
        size = tensor.numel() * tensor.element_size()
        if size == 0:
            own.append(name)
            continue
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape))
        if place in by_place:
            aliases[name] = by_place[place]
            continue
        by_place[place] = name
        own.append(name)
        ends.append((tensor.data_ptr(), tensor.data_ptr() + size, name))
    ends.sort()
    for (_, end, name), (begin, _, other) in zip(ends, ends[1:]):
        if begin < end:
            raise InvalidError(
                f"{path} cannot be converted: {name} and {other} share a part of their memory"
            )
    return own, aliases


def convert(path: str, out: str) -> None:
    """Writes a state dict of torch.save as a safetensors file, with what torch.load(path) gives
    back besides the tensors.

    The state dict is flat, and its tensors are dense: InvalidError names what is not. The file is
    loaded with weights_only, so that nothing in it is run. With "path=out" in BELLOWS_MODELS_MAP,
    and `out` in the model store, torch.load(path) gives the store's memory where BELLOWS_MODELS is
    on.
    """
    import torch

    path, out = os.fspath(path), os.fspath(out)
    before = _settled_state(path)
    places = set()

    def to_host(storage: Any, location: str) -> Any:
        places.add(location)
        return storage

    state = torch.load(path, map_location=to_host, weights_only=True)
    if type(state) not in (dict, collections.OrderedDict):
        raise InvalidError(
            f"{path} cannot be converted: it holds a {type(state).__name__}, no dict"
        )
    for name, value in state.items():
        _check_tensor(path, name, value)
    own, aliases = _without_aliases(path, state)
    about = {
        **before,
        "order": list(state),
        "aliases": aliases,
        "ordered": type(state) is collections.OrderedDict,
        "of_modules": getattr(state, "_metadata", None),
        "elsewhere": sorted(places - {"cpu"}),
    }
    tensors = []
    for name in own:
        tensor = state[name]
        data = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b""
        tensors.append((name, _dtype_name(tensor.dtype), tuple(tensor.shape), data))
    if _state_of(path) != before:
        raise InvalidError(f"{path} was changed while it was read")
    write_file(out, tensors, {_KEY: json.dumps(about)})


def loaded(path: str, header: Header, model: Model, device: Any) -> Any:
    """What torch.load gives of the file that was converted into this model. ValueError: it was
    changed since, or is another."""
    about = json.loads((header.metadata or {})[_KEY])
    if _state_of(path) != {key: about[key] for key in ("size", "mtime_ns")}:
        raise ValueError(f"{path} was changed since it was converted")
    if device is None and about["elsewhere"]:
        raise ValueError(f"{path} has tensors of {', '.join(about['elsewhere'])}")
    state: Dict[str, Any] = collections.OrderedDict() if about["ordered"] else {}
    for name in about["order"]:
        of = about["aliases"].get(name)
        tensor = model.tensor(name) if of is None else state[of].detach()
        state[name] = tensor if device is None else tensor.to(device)
    if about["of_modules"] is not None:
        state._metadata = collections.OrderedDict(about["of_modules"])  # type: ignore[attr-defined]
    return state
