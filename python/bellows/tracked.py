# SPDX-License-Identifier: Apache-2.0
"""What track() accepts besides models and optimizers: anything with a state_dict, dicts, samplers,
and random number generators.

Each kind has three methods. collect: its structure, with its regions added to a Flat. prepare: the
regions that a restore is to fill. apply: puts what was restored into the object.
"""

import ctypes
import random
import struct
import sys
from typing import Any, Callable, Dict, NamedTuple

from . import _lib, regions
from .errors import InvalidError, MismatchError
from .sampler import Position, Sampler
from .tree import Filling, Flat, Node, Regions


class Stateful:
    """An object with state_dict() and load_state_dict(): a scheduler, a GradScaler, your own."""

    def __init__(self, name: str, thing: Any) -> None:
        self.name = name
        self._thing = thing

    def _state(self) -> Any:
        return self._thing.state_dict()

    def collect(self, flat: Flat) -> Node:
        return flat.node(self.name, self._state())

    def prepare(self, node: Node) -> Regions:
        self._filling = Filling()
        self._filling.prepare(node)
        return self._filling.regions

    def apply(self, node: Node, step: int) -> None:
        self._thing.load_state_dict(self._filling.state(node, self._state()))


class Items(Stateful):
    """A plain dict, such as the best accuracy so far; a restore replaces its items."""

    def _state(self) -> Any:
        return self._thing

    def apply(self, node: Node, step: int) -> None:
        state = self._filling.state(node, dict(self._thing))
        self._thing.clear()
        self._thing.update(state)


class SamplerPosition:
    """A bellows.Sampler: how far training has come, not how far the batches were fetched."""

    def __init__(self, name: str, sampler: Sampler, batches_per_step: int) -> None:
        self.name = name
        self._sampler = sampler
        self._batches_per_step = batches_per_step
        self._step = 0
        sampler.start(0, Position(0, 0), batches_per_step)

    def told(self, step: int) -> None:
        self._step = step
        self._sampler.told(step)

    def _state(self, position: Position) -> Any:
        sampler = self._sampler
        return {
            "epoch": position.epoch,
            "offset": position.offset,
            "seed": sampler.seed,
            "dataset_size": sampler.dataset_size,
        }

    def collect(self, flat: Flat) -> Node:
        return flat.node(self.name, self._state(self._sampler.position(self._step)))

    def prepare(self, node: Node) -> Regions:
        self._filling = Filling()
        self._filling.prepare(node)
        return self._filling.regions

    def apply(self, node: Node, step: int) -> None:
        state = self._filling.state(node)
        position = Position(state["epoch"], state["offset"])
        mine = self._state(position)
        for key, stored in state.items():
            if stored != mine[key]:
                raise MismatchError(
                    f"{self.name}: the checkpoint's order of samples was made with {key} {stored} "
                    f"and the program has {mine[key]}; the batch and the ranks may change, not this"
                )
        self._sampler.start(step, position, self._batches_per_step)
        self._step = step


class Generator(NamedTuple):
    """A random number generator, read and set as bytes of a fixed length."""

    get: Callable[[], bytes]
    set: Callable[[bytes], None]


_PYTHON = struct.Struct("<625I?d")
_NUMPY = struct.Struct("<624Iiid")


def _get_python() -> bytes:
    _, numbers, gauss = random.getstate()
    return _PYTHON.pack(*numbers, gauss is not None, gauss or 0.0)


def _set_python(state: bytes) -> None:
    *numbers, has_gauss, gauss = _PYTHON.unpack(state)
    random.setstate((3, tuple(numbers), gauss if has_gauss else None))


def _numpy() -> Generator:
    import numpy

    def get() -> bytes:
        kind, keys, *rest = numpy.random.get_state()
        if kind != "MT19937":
            raise InvalidError(f"rng: numpy's global generator is {kind}, not MT19937")
        return _NUMPY.pack(*keys.tolist(), *rest)

    def set(state: bytes) -> None:
        numbers = _NUMPY.unpack(state)
        keys = numpy.array(numbers[:624], dtype=numpy.uint32)
        numpy.random.set_state(("MT19937", keys, *numbers[624:]))

    return Generator(get, set)


def _torch(get_state: Callable[[], Any], set_state: Callable[[Any], None]) -> Generator:
    import torch

    def get() -> bytes:
        state = get_state()
        return ctypes.string_at(state.data_ptr(), state.numel())

    def set(state: bytes) -> None:
        set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    return Generator(get, set)


class Rng:
    """The generators of Python, numpy, torch and the current GPU, separate for each rank.

    Restored at another world size, rank r continues with what rank r had; a rank that is new keeps
    the state that the program gave it.
    """

    name = "rng"

    def _generators(self) -> Dict[str, Generator]:
        found = {"python": Generator(_get_python, _set_python)}
        if "numpy" in sys.modules:
            found["numpy"] = _numpy()
        if "torch" in sys.modules:
            import torch

            found["torch"] = _torch(torch.get_rng_state, torch.set_rng_state)
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                found["cuda"] = _torch(torch.cuda.get_rng_state, torch.cuda.set_rng_state)
        return found

    def _regions(self) -> Regions:
        return {
            f"rng/{kind}": regions.stored_bytes(generator.get(), _lib.PER_RANK)
            for kind, generator in self._generators().items()
        }

    def collect(self, flat: Flat) -> Node:
        own = self._regions()
        flat.regions.update(own)
        return ["=", " ".join(own)]

    def prepare(self, node: Node) -> Regions:
        stored = node[1].split()
        self._filled = {name: r for name, r in self._regions().items() if name in stored}
        return self._filled

    def apply(self, node: Node, step: int) -> None:
        generators = self._generators()
        for name, region in self._filled.items():
            generators[name.split("/")[1]].set(region.keep.raw)
