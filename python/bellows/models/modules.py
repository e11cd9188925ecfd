# SPDX-License-Identifier: Apache-2.0
"""Models in torch modules. Imported only where the program uses torch."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Tuple

import torch

from .errors import MismatchError

if TYPE_CHECKING:
    from .model import Model

_MOST_NAMED = 5


class _Place(NamedTuple):
    """Where a module has a tensor. A tied one comes under each of its names."""

    name: str  #: in the state dict
    owner: Any
    own_name: str
    is_parameter: bool
    tensor: Any


def _places(module: Any) -> Iterator[_Place]:
    for prefix, owner in module.named_modules(remove_duplicate=False):
        begin = f"{prefix}." if prefix else ""
        for name, tensor in owner._parameters.items():
            if tensor is not None:
                yield _Place(begin + name, owner, name, True, tensor)
        for name, tensor in owner._buffers.items():
            if tensor is not None and name not in owner._non_persistent_buffers_set:
                yield _Place(begin + name, owner, name, False, tensor)


def _named(names: List[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _sources(model: "Model", places: List[_Place], strict: bool) -> Dict[int, str]:
    """Which tensor of the model each tensor of the module gets, by its id."""
    sources: Dict[int, str] = {}
    shapes: List[str] = []
    for place in places:
        if place.name not in model:
            continue
        sources.setdefault(id(place.tensor), place.name)
        shape = model.info(place.name).shape
        if shape != tuple(place.tensor.shape):
            shapes.append(f"{place.name} is {list(shape)}, not {list(place.tensor.shape)}")
    wrong = []
    missing = [place.name for place in places if id(place.tensor) not in sources]
    if missing:
        wrong.append(f"it has no {_named(missing)}")
    if shapes:
        wrong.append(f"its {_named(shapes)}")
    surplus = set(model) - {place.name for place in places} if strict else set()
    if surplus:
        wrong.append(f"the module has no {_named(sorted(surplus))}")
    if wrong:
        raise MismatchError(f"model {model.name} does not fit the module: " + "; ".join(wrong))
    return sources


def _filled(parameter: Any, tensor: Any, writable: bool) -> Any:
    """The parameter with the memory of the tensor, or another in its place."""
    wants_gradient = parameter.requires_grad and writable and tensor.is_floating_point()
    if parameter.device.type == "meta":
        return torch.nn.Parameter(tensor, requires_grad=wants_gradient)
    if parameter.device.type != "cpu":
        # It has memory of its own there.
        parameter.data.copy_(tensor)
        return parameter
    parameter.requires_grad_(wants_gradient)
    parameter.data = tensor
    return parameter


def _copied(buffer: Any, tensor: Any) -> Any:
    """A buffer of its own, with the parameters: where the model is, or on the module's GPU."""
    has_gpu = buffer.device.type not in ("cpu", "meta")
    return tensor.to(buffer.device if has_gpu else tensor.device, copy=True)


def _move_others(module: Any, device: Any) -> None:
    """Buffers that no state dict has follow the model to its GPU."""
    # With the buffer, so that its id stays its own.
    moved: Dict[int, Tuple[Any, Any]] = {}
    for owner in module.modules():
        for name in owner._non_persistent_buffers_set:
            buffer = owner._buffers.get(name)
            if buffer is None or buffer.device.type != "cpu":
                continue
            owner._buffers[name] = moved.setdefault(id(buffer), (buffer, buffer.to(device)))[1]


def load_into(model: "Model", module: Any, strict: bool) -> None:
    """As Model.load_into has it."""
    # The list keeps all of them, so that an id stays that of one.
    places = list(_places(module))
    sources = _sources(model, places, strict)
    filled: Dict[int, Any] = {}
    device = torch.device("cpu")
    with torch.no_grad():
        for place in places:
            number = id(place.tensor)
            if number not in filled:
                tensor = model.tensor(sources[number])
                filled[number] = (
                    _filled(place.tensor, tensor, model.writable)
                    if place.is_parameter
                    else _copied(place.tensor, tensor)
                )
                device = tensor.device
            own = place.owner._parameters if place.is_parameter else place.owner._buffers
            own[place.own_name] = filled[number]
        if device.type != "cpu":
            _move_others(module, device)
