# SPDX-License-Identifier: Apache-2.0
"""How noisy the gradients of a DistributedDataParallel training are, and how fast it is."""

import math
import statistics
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

_STEP_TIMES = 33  # the throughput is that of the median of one fewer steps


class GradientNoise:
    """Measures the noise scale of a training's gradients and its throughput, on all ranks alike.

    parallel: the DistributedDataParallel. batch: the samples in a step over all ranks. every: one
    step in so many is measured; the others cost nothing but the call of the hook. smoothing: how
    much of the average stays at a new measurement. hook, state: the communication hook that
    averages gradients, by default DistributedDataParallel's own sum over the ranks.

    With K ranks, each of which has batch / K samples, the squared norms of the ranks' own gradients
    are on average |G|^2 + K v and that of their mean is |G|^2 + v, where G is the true gradient and
    v the variance of a whole batch's. So each measurement gives unbiased estimates of |G|^2 and of
    the variance v * batch of a sample's gradient, which are averaged separately (McCandlish et al.,
    "An Empirical Model of Large-Batch Training", arXiv:1812.06162, appendix A; Johnson et al.,
    arXiv:2007.05105; Qiao et al., "Pollux", OSDI 2021). On a single rank the gradients of two steps
    in a row take the place of two ranks', which needs memory for a copy of the gradients and is
    biased by the step between them. The last batch of an epoch counts as a whole one.

    track(noise=...) of a Checkpoint keeps the averages over restarts with other batches and ranks.
    """

    def __init__(
        self,
        parallel: Any,
        batch: int,
        every: int = 10,
        smoothing: float = 0.99,
        hook: Optional[Callable[[Any, Any], Any]] = None,
        state: Any = None,
    ) -> None:
        import torch

        if batch < 1 or every < 2 or not 0 <= smoothing < 1:
            raise ValueError(
                f"batch={batch}, every={every}, smoothing={smoothing}: the batch is 1 or more, every "
                "2 or more, and smoothing from 0 to below 1"
            )
        self.batch = batch
        self._torch = torch
        self._world = torch.distributed.get_world_size(parallel.process_group)
        self._group = parallel.process_group
        self._every = every
        self._smoothing = smoothing
        self._hook = hook or self._all_reduce
        self._hook_state = state
        self._on_its_way: List[Any] = []  # by bucket: the hook's future, and the one it was given for
        self._step = 0
        self._times: Deque[float] = deque(maxlen=_STEP_TIMES)
        # Of a measurement, by bucket: squared norms of this rank's gradients and of the mean.
        self._own: List[Any] = []
        self._mean: List[Any] = []
        self._before: List[Any] = []  # on a single rank: the last step's gradients, by bucket
        # Of |G|^2 and of the variance of a sample's gradient. As long as few measurements make them
        # both are too small by the same factor, which their ratio does not have.
        self._averages: Any = None
        parallel.register_comm_hook(self, _communicate)

    @property
    def scale(self) -> Optional[float]:
        """The gradient's noise scale: the batch at which noise and gradient are equally large.

        The variance of a sample's gradient over the squared norm of the gradient; infinite when no
        gradient is seen in the noise, None before the second step after the first measurement. The
        same on every rank. Waits for the GPU.
        """
        if self._averages is None:
            return None
        square, variance = self._averages.tolist()
        variance = max(variance, 0.0)
        if square > 0:
            return variance / square
        return math.inf if variance > 0 else None

    @property
    def throughput(self) -> Optional[float]:
        """Samples in a second over all ranks, at the speed of recent steps; None at the first."""
        times = list(self._times)
        if len(times) < 2:
            return None
        return self.batch / statistics.median(b - a for a, b in zip(times, times[1:]))

    def state_dict(self) -> Dict[str, float]:
        """The averages, for a checkpoint."""
        values = [0.0] * 2 if self._averages is None else self._averages.tolist()
        return dict(zip(("square", "variance"), values))

    def load_state_dict(self, state: Dict[str, float]) -> None:
        """Continues from averages that a training had before."""
        values = [state["square"], state["variance"]]
        self._averages = self._torch.tensor(values, dtype=self._torch.float64)

    def ready(self, bucket: Any) -> Any:
        """Called for each bucket, in the same order on every rank; gives its averaged gradients."""
        # The first step's buckets are others than the rest's.
        turn = self._step % self._every if self._step > 0 else -1
        if bucket.index() == 0:
            self._begin(turn)
        measures = turn == self._every - 1 and (self._world > 1 or bool(self._before))
        if measures and self._world > 1:
            self._own.append(self._square(bucket.buffer()))
        if turn == self._every - 2 and self._world == 1:
            self._before.append(bucket.buffer().clone())
        device = bucket.buffer().device
        done = self._torch.futures.Future(devices=[device] if device.type == "cuda" else None)
        self._on_its_way.append((self._hook(self._hook_state, bucket), done))
        if bucket.is_last():
            self._finish(measures)
        return done

    def _begin(self, turn: int) -> None:
        """Drops what a step that failed has left; the program may have gone on."""
        self._on_its_way = []
        if turn == 0:
            self._take_up()
        if turn == self._every - 2:
            self._before = []
        if turn == self._every - 1:
            self._own, self._mean = [], []

    def _all_reduce(self, state: Any, bucket: Any) -> Any:
        gradients = bucket.buffer().div_(self._world)
        return self._torch.distributed.all_reduce(
            gradients, group=self._group, async_op=True
        ).get_future()

    def _finish(self, measures: bool) -> None:
        """Waits for all buckets, as DistributedDataParallel is about to do.

        A callback for each would run in a thread of gloo, which may abort the program at its end:
        it then still has to let go of what belongs to an interpreter that is gone.
        """
        on_its_way, self._on_its_way = self._on_its_way, []
        for index, (future, done) in enumerate(on_its_way):
            value = future.wait()
            mean = value[0] if isinstance(value, (list, tuple)) else value
            if measures:
                self._measure(mean, index)
            done.set_result(mean)
        self._times.append(time.monotonic())
        self._step += 1

    def _measure(self, mean: Any, index: int) -> None:
        if self._world == 1:
            before = self._before[index]
            self._own.append((self._square(before) + self._square(mean)) / 2)
            self._mean.append(self._square((before + mean) / 2))
        else:
            self._mean.append(self._square(mean))

    def _square(self, gradients: Any) -> Any:
        torch = self._torch
        dtype = torch.promote_types(gradients.dtype, torch.float32)
        return torch.linalg.vector_norm(gradients, dtype=dtype).double() ** 2

    def _take_up(self) -> None:
        """Adds the last measurement to the averages. On all ranks together."""
        own_parts, mean_parts = self._own, self._mean
        self._own, self._mean, self._before = [], [], []
        if not own_parts:
            return
        torch = self._torch
        sums = torch.stack([sum(own_parts), sum(mean_parts)])
        # Also of what differs in its last bits at most: the ranks must agree exactly.
        if self._world > 1:
            torch.distributed.all_reduce(sums, group=self._group)
        own, mean = sums / self._world
        # On a single rank, two batches are compared.
        parts, samples = (self._world, self.batch) if self._world > 1 else (2, 2 * self.batch)
        new = torch.stack([parts * mean - own, (own - mean) * samples]) / (parts - 1)
        old = torch.zeros_like(new) if self._averages is None else self._averages.to(new.device)
        mixed = self._smoothing * old + (1 - self._smoothing) * new
        # Gradients that overflowed, as a GradScaler makes them now and then, say nothing.
        self._averages = torch.where(torch.isfinite(new).all(), mixed, old)


def _communicate(noise, bucket):  # type: ignore[no-untyped-def]
    """The hook. torch refuses annotations that are not its own."""
    return noise.ready(bucket)
