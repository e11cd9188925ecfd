# SPDX-License-Identifier: Apache-2.0
"""An order of samples that survives a resize."""

from typing import Iterator, List, NamedTuple, Optional

from ._lib import permutation


class Position(NamedTuple):
    """How far a training has come: `offset` samples of epoch `epoch` are used."""

    epoch: int
    offset: int


class Sampler:
    """Batches of indices for this rank: DataLoader(data, batch_sampler=Sampler(...)).

    Each epoch has an order of its own, a function of `seed` and the epoch alone. A step uses the
    next `global_batch` samples of that order, and each of the `world` ranks an equal part of them
    (when it does not divide, parts differ by one). So a training may stop after any step and
    continue with another world and batch: no sample is left out or used twice. No set_epoch: each
    iteration over the sampler is one epoch, and the first one after a restore is the rest of the
    epoch that was begun.

    The last batch of an epoch holds what is left, perhaps fewer than `global_batch` samples; a
    rank's part is then an empty list if they are fewer than the ranks. With `drop_last` an epoch
    ends before that batch, and the samples in it are not used in this epoch.

    What counts as used is what was trained, not what a DataLoader has fetched ahead: the Checkpoint
    that tracks the sampler takes one batch for each step (`batches_per_step` of them when track()
    says so). One iteration at a time; samplers without torch work alike.
    """

    def __init__(
        self,
        dataset_size: int,
        global_batch: int,
        seed: int,
        rank: int,
        world: int,
        drop_last: bool = False,
    ) -> None:
        if dataset_size < 1 or global_batch < 1:
            raise ValueError(f"{dataset_size} samples in batches of {global_batch}: both must be at least 1")
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world} ranks: ranks count from 0")
        if world > global_batch:
            raise ValueError(f"{world} ranks cannot share a batch of {global_batch} samples")
        if drop_last and dataset_size < global_batch:
            raise ValueError(f"drop_last: {dataset_size} samples cannot fill a batch of {global_batch}")
        if not 0 <= seed < 2**63:
            raise ValueError(f"the seed {seed} is not a number from 0 to 2**63 - 1")
        self.dataset_size = dataset_size
        self.global_batch = global_batch
        self.seed = seed
        self.rank = rank
        self.world = world
        self.drop_last = drop_last
        self._batches_per_step = 1
        self.start(0, Position(0, 0))

    def start(self, step: int, position: Position, batches_per_step: int = 1) -> None:
        """Sets the position that training has reached at `step`; a restore calls it."""
        if not 0 <= position.offset <= self.dataset_size:
            raise ValueError(f"{position} is outside of {self.dataset_size} samples")
        self._first_step = self._told = step
        self._first = self._next = self._normal(position)
        self._batches_per_step = batches_per_step
        self._begun: Optional[Position] = None  # where the last iteration began

    def told(self, step: int) -> None:
        """Notes the step that training has reached."""
        self._told = step

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, from 0."""
        return self._next.epoch

    def _batches_left(self, position: Position) -> int:
        left = self.dataset_size - position.offset
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def _normal(self, position: Position) -> Position:
        return position if self._batches_left(position) else Position(position.epoch + 1, 0)

    def _after(self, position: Position, batches: int) -> Position:
        left = self._batches_left(position)
        if batches >= left:
            epochs, batches = divmod(batches - left, len(self))
            position = Position(position.epoch + 1 + epochs, 0)
        return self._normal(
            Position(
                position.epoch,
                min(position.offset + batches * self.global_batch, self.dataset_size),
            )
        )

    def position(self, step: int) -> Position:
        """How far training has come when it is about to train the batches of `step`."""
        steps = step - self._first_step
        if steps < 0:
            raise ValueError(f"step {step} is before step {self._first_step}, where this one began")
        return self._after(self._first, steps * self._batches_per_step)

    def size_at(self, step: int) -> int:
        """Samples in the (first) global batch of `step`: global_batch, or fewer at an epoch's end.

        For weighing a rank's loss: the sum over its samples * world / size_at(step) gives, averaged
        over the ranks, the mean over the batch at any world size.
        """
        return min(self.global_batch, self.dataset_size - self.position(step).offset)

    def _batch(self, position: Position) -> List[int]:
        size = min(self.global_batch, self.dataset_size - position.offset)
        begin = size * self.rank // self.world
        end = size * (self.rank + 1) // self.world
        return permutation(
            self.seed, position.epoch, self.dataset_size, position.offset + begin, end - begin
        )

    def __len__(self) -> int:
        """Batches in a whole epoch, also when the next iteration is only the rest of one."""
        return self._batches_left(Position(0, 0))

    def __iter__(self) -> Iterator[List[int]]:
        if self._begun is not None:
            self._go_on(self._begun)
        return self._iterate(self._next)

    def _go_on(self, begun: Position) -> None:
        if self._next.epoch != begun.epoch:
            return  # all of it was handed out
        if self.position(self._told) > begun:
            raise RuntimeError(
                f"the iteration over epoch {begun.epoch} was left before its end; a "
                "bellows.Sampler continues with the next epoch only after all of an epoch"
            )
        # Someone had a look at the first batches and left.
        self._next = begun

    def _iterate(self, position: Position) -> Iterator[List[int]]:
        self._begun = position
        while True:
            batch = self._batch(position)
            after = self._after(position, 1)
            if after.epoch != position.epoch:
                self._next = after
            yield batch
            if after.epoch != position.epoch:
                return
            position = after
