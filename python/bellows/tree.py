# SPDX-License-Identifier: Apache-2.0
"""A state_dict as named regions and a structure, and back.

The structure is what is left of a state when its arrays and numbers are taken out: nested JSON
lists, each with a letter in front.

    ["d", [[key, node], ...]]            a dict; keys are strings and numbers
    ["l", [node, ...]], ["t", [...]]     a list, a tuple
    ["a", name, dtype, shape, place]     an array; place: "cpu", "cuda" or "numpy"
    ["v", name, kind]                    a number; kind: "b", "i" or "f"
    ["=", value]                         a string, None, or an integer beyond 64 bits
    ["k"]                                a function: the program's own is kept

No pickles: a checkpoint can hold no code.
"""

from typing import Any, Dict, List, Optional

from . import arrays, regions
from .errors import InvalidError, MismatchError

Node = List[Any]
Regions = Dict[str, regions.Region]
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+:")


def part_of_name(key: Any) -> str:
    """A key as one part of an array's name.

    Letters, digits and _ - . + : stay; every other byte of its UTF-8 becomes %XX, as does a dot in
    front; the empty key becomes a single %.
    """
    raw = str(key).encode()
    text = "".join(chr(c) if chr(c) in _PLAIN else f"%{c:02X}" for c in raw)
    if text.startswith("."):
        text = "%2E" + text[1:]
    return text or "%"


class Flat:
    """Takes a state apart: `regions` by name, in the order in which they were found."""

    def __init__(self) -> None:
        self.regions: Regions = {}
        self._tensors: Dict[Any, str] = {}

    def add(self, name: str, region: regions.Region) -> str:
        if name in self.regions:
            raise InvalidError(f"array {name}: two things have this name")
        self.regions[name] = region
        return name

    def node(self, name: str, state: Any) -> Node:
        """The structure of a state; its arrays are named below `name`."""
        if isinstance(state, dict):
            return ["d", [self._item(name, key, inner) for key, inner in state.items()]]
        if isinstance(state, (list, tuple)):
            kind = "t" if isinstance(state, tuple) else "l"
            return [kind, [self.node(f"{name}/{i}", inner) for i, inner in enumerate(state)]]
        if arrays.is_tensor(state) or hasattr(state, "__array_interface__"):
            return self._array(name, state)
        return self._leaf(name, state)

    def _item(self, name: str, key: Any, inner: Any) -> List[Any]:
        if not isinstance(key, (str, int, float)) or isinstance(key, bool):
            raise InvalidError(f"{name}: the key {key!r} is neither a string nor a number")
        return [key, self.node(f"{name}/{part_of_name(key)}", inner)]

    def _array(self, name: str, state: Any) -> Node:
        if not arrays.is_tensor(state) and getattr(state, "shape", None) == ():
            return self._leaf(name, state.item())  # a number of numpy
        region = arrays.region_of(name, state)
        kind_and_shape = [region.dtype, list(region.shape)]
        if not arrays.is_tensor(state):
            return ["a", self.add(name, region), *kind_and_shape, "numpy"]
        # Tied weights: one tensor under two names is stored once, under the first.
        place = (region.data, region.dtype, region.shape)
        if region.data == 0 or place not in self._tensors:
            self._tensors[place] = self.add(name, region)
        return ["a", self._tensors[place], *kind_and_shape, state.device.type]

    def _leaf(self, name: str, state: Any) -> Node:
        if isinstance(state, bool):
            return ["v", self.add(name, regions.value(bool(state))), "b"]
        if isinstance(state, int) and -(2**63) <= state < 2**63:
            return ["v", self.add(name, regions.value(int(state))), "i"]
        if isinstance(state, float):
            return ["v", self.add(name, regions.value(float(state))), "f"]
        if state is None or isinstance(state, (str, int)):
            return ["=", state]
        if callable(state) and not isinstance(state, type):
            return ["k"]
        raise InvalidError(
            f"{name}: a {type(state).__name__} cannot be saved; tensors, arrays, numbers, strings, "
            "None, and dicts, lists and tuples of them can"
        )


class Filling:
    """Puts a state together: first the arrays that a restore is to fill, then the whole state.

    Arrays that the program has, and that fit, are filled where they are. New tensors that were on a
    GPU come to `device`, and others to the host.
    """

    def __init__(self, device: Any = None) -> None:
        self.regions: Regions = {}
        self._made: Dict[str, Any] = {}
        self._device = device

    def _make(self, node: Node, current: Any) -> Any:
        _, _, dtype, shape, place = node
        if place == "numpy":
            return arrays.numpy_array(dtype, shape, current)
        from . import tensors

        tensor = tensors.fitting(current, dtype, shape)
        if tensor is None:
            tensor = tensors.new_tensor(
                dtype, shape, tensors.gpu(self._device) if place == "cuda" else "cpu"
            )
        return tensor

    def prepare(self, node: Node, current: Any = None) -> None:
        """Finds a place for every array and number of the structure."""
        kind = node[0]
        if kind == "d":
            for key, inner in node[1]:
                self.prepare(inner, current.get(key) if isinstance(current, dict) else None)
        elif kind in "lt":
            for i, inner in enumerate(node[1]):
                self.prepare(inner, _at(current, i))
        elif kind == "v":
            self.regions[node[1]] = regions.value({"b": False, "i": 0, "f": 0.0}[node[2]])
        elif kind == "a" and node[1] not in self.regions:
            made = self._make(node, current)
            self._made[node[1]] = made
            self.regions[node[1]] = arrays.region_of(node[1], made)

    def state(self, node: Node, current: Any = None) -> Any:
        """The state, once the regions are filled."""
        kind = node[0]
        if kind == "d":
            known = current if isinstance(current, dict) else {}
            return {key: self.state(inner, known.get(key)) for key, inner in node[1]}
        if kind in "lt":
            inner_states = [self.state(inner, _at(current, i)) for i, inner in enumerate(node[1])]
            return tuple(inner_states) if kind == "t" else inner_states
        if kind == "v":
            return self.regions[node[1]].keep.value
        if kind == "a":
            return self._made[node[1]]
        return current if kind == "k" else node[1]


def _at(current: Any, i: int) -> Any:
    return current[i] if isinstance(current, (list, tuple)) and i < len(current) else None


def check_fits(name: str, node: Node, region: Optional[regions.Region]) -> None:
    """Raises MismatchError unless the program's region can hold the stored array."""
    if region is None:
        raise MismatchError(f"array {name}: the checkpoint holds it and the program does not")
    if (region.dtype, list(region.shape)) != (node[2], node[3]):
        raise MismatchError(
            f"array {name}: the checkpoint has shape {node[3]} and type {node[2]}, the program "
            f"has shape {list(region.shape)} and type {region.dtype}"
        )
