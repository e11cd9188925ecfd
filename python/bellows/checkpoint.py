# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: what a training program uses."""

import ctypes
import json
import operator
import sys
import time
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Tuple, Type

from . import _lib, arrays, regions, tracked
from .errors import Error, InvalidError, MismatchError, StorageError
from .noise import GradientNoise
from .sampler import Sampler
from .tree import Flat, Node, Regions, part_of_name

_FORMAT = "bellows-state/1"
_STRUCTURE = "bellows/structure"
_STRUCTURE_BYTES = "bellows/structure_bytes"
_NOISE_EVERY_S = 5.0


def _place_in_torch() -> Tuple[Optional[int], Optional[int]]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None, None
    if not torch.distributed.is_initialized():
        return None, None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def _noise_of(things: Dict[str, Any], batches_per_step: int) -> GradientNoise:
    parallel = [thing for thing in things.values() if hasattr(thing, "register_comm_hook")]
    samplers = [thing for thing in things.values() if isinstance(thing, Sampler)]
    if len(parallel) != 1 or len(samplers) != 1:
        raise InvalidError(
            "track(noise=True) needs one DistributedDataParallel and one bellows.Sampler beside it; "
            "otherwise make a GradientNoise and track that"
        )
    return GradientNoise(parallel[0], samplers[0].global_batch * batches_per_step)


class Checkpoint:
    """The checkpoints of one training, which may continue with another number of ranks.

    dir: the directory, by default $BELLOWS_CHECKPOINT_DIR or ./bellows-checkpoints; in a job of
    `bellows run` the launcher has chosen it. rank, world: by default those of torch.distributed
    when it is initialised, else from the environment (see libbellows(3)). keep: committed steps to keep,
    by default 3. keep_every: besides, every step divisible by it. on_failed_save: "raise", or
    "warn" to continue training with a RuntimeWarning when a save could not be stored.

    Every rank makes the same calls in the same order. Failures are raised as bellows.Error, with
    the library's sentence; a bellows.StorageError of a save is no reason to stop training.

        with bellows.Checkpoint() as checkpoint:
            checkpoint.track(model=model, optimizer=optimizer, rng=True)
            step = checkpoint.restore() or 0
            ...
    """

    def __init__(
        self,
        dir: Optional[str] = None,
        rank: Optional[int] = None,
        world: Optional[int] = None,
        keep: Optional[int] = None,
        keep_every: int = 0,
        on_failed_save: str = "raise",
    ) -> None:
        if on_failed_save not in ("raise", "warn"):
            raise InvalidError(f'on_failed_save={on_failed_save!r}: it is "raise" or "warn"')
        self._warns = on_failed_save == "warn"
        if rank is None and world is None:
            rank, world = _place_in_torch()
        self._arrays: Regions = {}
        self._tracked: Dict[str, Any] = {}
        self._noise: Optional[GradientNoise] = None
        self._noise_due = 0.0
        self._known: Regions = {}  # what the library has
        self._stopped = False
        self._saved: Optional[int] = None  # or on its way
        self._handle = _lib.Handle(dir, rank, world, keep, keep_every)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._handle.rank

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._handle.world

    @property
    def saved_step(self) -> Optional[int]:
        """The newest step that this rank knows to be committed and durable."""
        return self._handle.saved_step()

    @property
    def memory(self) -> _lib.Memory:
        """Bytes that the copies of what is registered need on this node, and that are available.

        What track() was given counts from the first save or restore on.
        """
        return self._handle.memory()

    def register(
        self,
        name: str,
        array: Any,
        sharded: Optional[regions.Shard] = None,
        per_rank: bool = False,
    ) -> None:
        """Names an array that save stores and restore fills, in place; a name again replaces it.

        array: a numpy array, a tensor of PyTorch on the host or a GPU, or a writable buffer, with
        its elements in C order (tensors: in any). Its memory must stay as long as it is registered;
        the Checkpoint keeps the object alive. By default the array is replicated: of equal content
        on every rank, and stored once. sharded: it is this rank's part of a larger array.
        per_rank: each rank has its own, of any shape; on a restore rank r gets what rank r had, and
        a rank that is new keeps its content.
        """
        if name == "bellows" or name.startswith("bellows/"):
            raise InvalidError(f"array {name}: names in bellows/ are the package's own")
        if sharded is not None and per_rank:
            raise InvalidError(f"array {name}: it is either sharded or per rank")
        region = arrays.region_of(name, array)
        if sharded is not None:
            region = regions.sharded(name, region, sharded)
        elif per_rank:
            region = regions.per_rank(region)
        self._register(name, region)
        self._arrays[name] = region

    def unregister(self, name: str) -> None:
        """Undoes register() for an array."""
        if self._arrays.pop(name, None) is None:
            raise InvalidError(f"array {name}: it is not registered")
        if self._known.pop(name, None) is not None:
            self._handle.unregister(name)

    def track(
        self, *, rng: bool = False, noise: Any = False, batches_per_step: int = 1, **things: Any
    ) -> None:
        """Saves and restores whole objects, each under the name of its keyword.

        A torch.nn.Module (also in DistributedDataParallel) and a torch.optim.Optimizer are saved
        and restored in place, and state that an optimizer lacks before its first step is made; a
        bellows.Sampler's position follows the steps, with `batches_per_step` batches each; anything
        else needs state_dict() and load_state_dict(), or is a dict, which a restore fills. rng: the
        random number generators of Python, numpy and torch, per rank. noise: a GradientNoise, which
        should_stop then asks for bellowsd; True makes one of the DistributedDataParallel and the
        Sampler that are given with it.

        Names of arrays: the keyword, then the keys of the state_dict, joined by "/"; see
        python/README.md for keys with odd characters. All tensors are taken for replicated.
        """
        if noise is not False:
            things["noise"] = _noise_of(things, batches_per_step) if noise is True else noise
        for name, thing in things.items():
            self._tracked[name] = self._kind_of(part_of_name(name), thing, batches_per_step)
            if isinstance(thing, GradientNoise):
                self._noise = thing
        if rng:
            self._tracked["rng"] = tracked.Rng()

    def _kind_of(self, name: str, thing: Any, batches_per_step: int) -> Any:
        if name in ("bellows", "rng"):
            raise InvalidError(f"track({name}=...): this name is taken")
        if isinstance(thing, Sampler):
            return tracked.SamplerPosition(name, thing, batches_per_step)
        if "torch" in sys.modules:
            from . import torch_state

            kind = torch_state.kind_of(name, thing, self._tracked)
            if kind is not None:
                return kind
        if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            return tracked.Stateful(name, thing)
        if isinstance(thing, dict):
            return tracked.Items(name, thing)
        raise InvalidError(
            f"track({name}=...): a {type(thing).__name__} has no state_dict and load_state_dict; "
            "use register() for single arrays"
        )

    def _register(self, name: str, region: regions.Region) -> None:
        known = self._known.get(name)
        if known is not None and known.ours and region.ours and known.same_kind(region):
            ctypes.memmove(known.data, region.data, ctypes.sizeof(known.keep))
            return
        if known is None or not known.same_place(region):
            regions.register(self._handle, name, region)
        self._known[name] = region

    def _sync(self, wanted: Regions) -> None:
        """Registers exactly these regions with the library."""
        for name in [name for name in self._known if name not in wanted]:
            self._handle.unregister(name)
            del self._known[name]
        for name, region in wanted.items():
            self._register(name, region)

    def _wait_for_gpus(self) -> None:
        devices = {str(r.device): r.device for r in self._known.values() if r.device is not None}
        if devices:
            from . import tensors

            tensors.synchronize(devices.values())

    def save(self, step: int, wait: bool = False) -> None:
        """Stores everything as `step`: the state before the batches of this step are trained.

        Returns once everything is copied, and may then change; with `wait`, once the step is
        committed and durable. Steps ascend; the last one again is not stored again. Raises what went
        wrong with this save or, if the error has a `failed_step`, with one in flight: then this one
        has begun all the same.
        """
        number = _step(step)
        self._tell(number)
        if number == self._saved:
            if wait:
                self.wait()
            return
        self._sync({**self._arrays, **self._collect()})
        for region in self._known.values():
            if region.before_save is not None:
                region.before_save()
        self._wait_for_gpus()
        self._saved = None
        try:
            self._handle.save(number, wait)
        except Error as error:
            if error.failed_step is not None:
                self._saved = number  # this one has begun all the same
            self._pass_over(error)
        else:
            self._saved = number

    def _pass_over(self, error: Error) -> None:
        """Raises it, unless training is to continue; called by the methods that a program calls."""
        if not (self._warns and isinstance(error, StorageError)):
            raise error
        warnings.warn(f"bellows: {error}", RuntimeWarning, stacklevel=3)

    def _collect(self) -> Regions:
        """The regions of all that is tracked, and their structure."""
        if not self._tracked:
            return {}
        tracked_regions: Regions = {}
        things: Dict[str, Node] = {}
        for name, thing in self._tracked.items():
            flat = Flat()
            things[name] = thing.collect(flat)
            tracked_regions.update(flat.regions)
        for name in tracked_regions:
            if name in self._arrays:
                raise InvalidError(f"array {name}: register() and track() both have this name")
        text = json.dumps({"format": _FORMAT, "things": things}, separators=(",", ":")).encode()
        return {
            **tracked_regions,
            _STRUCTURE_BYTES: regions.value(len(text)),
            _STRUCTURE: regions.stored_bytes(text),
        }

    def wait(self) -> None:
        """Waits until no save is in flight; raises what went wrong with one."""
        saved, self._saved = self._saved, None
        while True:  # each failure is told once
            try:
                self._handle.wait()
                break
            except Error as error:
                saved = None
                self._pass_over(error)
        self._saved = saved

    def should_stop(self, step: int) -> bool:
        """Whether to save this step, close and exit with status 0; the same on every rank.

        Costs next to nothing when called at every step. Waits only while a stop is being decided.
        """
        number = _step(step)
        self._tell(number)
        self._say_noise()
        stop = self._handle.should_stop(number)
        self._stopped = self._stopped or stop
        return stop

    def batch(self, own: int) -> int:
        """The samples in a step over all ranks: the batch that was ordered for the job, else `own`.

        `own` is the batch with which the program would train by itself. The result is the same on
        every rank and until the program ends. bellows.rates has rules for the learning rate.
        """
        number = operator.index(own)
        if not 1 <= number < 2**64:
            raise InvalidError(f"batch {number}: a step has at least one sample")
        return self._handle.batch(number)

    def noise_scale(self, samples: float) -> None:
        """Says the gradient's noise scale, as GradientNoise.scale is, for a program that measures it itself.

        bellowsd finds by it how large a batch pays off at each size of the job. A tracked
        GradientNoise is asked by should_stop, and need not be said.
        """
        self._handle.noise_scale(float(samples))

    def _say_noise(self) -> None:
        # Seldom and from one rank: the scale may have to be fetched from a GPU.
        now = time.monotonic()
        if self._noise is None or self.rank != 0 or now < self._noise_due:
            return
        scale = self._noise.scale
        if scale is None:
            return
        self._noise_due = now + _NOISE_EVERY_S
        self._handle.noise_scale(scale)

    def _tell(self, step: int) -> None:
        for thing in self._tracked.values():
            if isinstance(thing, tracked.SamplerPosition):
                thing.told(step)

    def restore(self) -> Optional[int]:
        """Fills everything from the newest good checkpoint and returns its step; None without one.

        Of what the checkpoint holds, only what is registered or tracked is read. Raises
        MismatchError when the checkpoint lacks some of that or has it in another type or shape; the
        objects are then as before. Saves in flight are waited for.
        """
        self.wait()
        # What was saved may be what is found bad.
        self._saved = None
        if not self._tracked:
            return self._fill(self._arrays)
        for _ in range(3):
            structure = self._read_structure()
            if structure is None:
                return None
            step, things = structure
            wanted: Regions = {}
            for name, thing in self._tracked.items():
                wanted.update(thing.prepare(things[name]))
            # Another step, when the newest one has just been found to be bad.
            if self._fill({**self._arrays, **wanted}) == step:
                break
        else:
            raise MismatchError("the newest step changed each time that restore looked for it")
        for name, thing in self._tracked.items():
            thing.apply(things[name], step)
        return step

    def _fill(self, wanted: Regions) -> Optional[int]:
        self._sync(wanted)
        self._wait_for_gpus()
        step = self._handle.restore()
        if step is None:
            return None
        for name, region in wanted.items():
            known = self._known[name]
            if known is not region:
                ctypes.memmove(region.data, known.data, ctypes.sizeof(known.keep))
            if region.after_restore is not None:
                region.after_restore()
        return step

    def _read_structure(self) -> Optional[Tuple[int, Dict[str, Node]]]:
        """What the newest checkpoint holds: its length first, since arrays have a known size."""
        length = regions.value(0)
        try:
            step = self._fill({_STRUCTURE_BYTES: length})
        except MismatchError as error:
            raise MismatchError(f"the checkpoint was created without track(): {error}") from error
        if step is None:
            self._sync(self._arrays)
            return None
        text = regions.stored_bytes(bytes(length.keep.value))
        step = self._fill({_STRUCTURE: text})
        if step is None:
            return None
        try:
            structure = json.loads(text.keep.raw)
        except ValueError:
            structure = {}
        if structure.get("format") != _FORMAT:
            raise MismatchError(f"step {step}: its structure is not {_FORMAT}")
        for name in self._tracked:
            if name not in structure["things"]:
                raise MismatchError(
                    f"track({name}=...): the checkpoint of step {step} was created without it; it "
                    f"holds {', '.join(structure['things'])}"
                )
        return step, structure["things"]

    def close(self, finished: Optional[bool] = None) -> None:
        """Waits for saves in flight and leaves; a second call does nothing.

        finished: whether training is complete, by default unless should_stop() said to stop.
        Raises what went wrong with a save.
        """
        if self._handle.closed:
            return
        try:
            self.wait()
        finally:
            self._handle.finalize(not self._stopped if finished is None else finished)
            self._known.clear()
            self._arrays.clear()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None or (kind is SystemExit and not error.code):  # type: ignore[union-attr]
            self.close()
        else:
            self._handle.abandon()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.abandon()


def _step(step: Any) -> int:
    number = operator.index(step)
    if not 0 <= number < 2**64 - 1:
        raise InvalidError(f"step {number}: steps count from 0 and are smaller than 2**64 - 1")
    return number
