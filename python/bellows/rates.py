# SPDX-License-Identifier: Apache-2.0
"""Learning rates for a batch that is not the one for which they were chosen.

Each rule gives the factor by which the learning rate of batch `start` is multiplied for `batch`.
None fits every training: linear() is for SGD and batches far below the gradient's noise scale,
square_root() for Adam and its kin, adascale() for SGD with a noise that is measured.
"""

import contextlib
import math
from typing import Any, Iterator


def linear(batch: int, start: int) -> float:
    """batch / start: Goyal et al., "Accurate, Large Minibatch SGD", arXiv:1706.02677."""
    return _checked(batch, start)


def square_root(batch: int, start: int) -> float:
    """sqrt(batch / start): for Adam, Malladi et al., "On the SDEs and Scaling Rules for Adaptive
    Gradient Algorithms", arXiv:2205.10287; first in Krizhevsky, arXiv:1404.5997."""
    return math.sqrt(_checked(batch, start))


def adascale(batch: int, start: int, noise_scale: float) -> float:
    """AdaScale's gain: Johnson et al., "AdaScale SGD", arXiv:2007.05105.

    The paper's r = (V + M) / (V / S + M) has the variance V of the gradient of a batch `start`, the
    squared norm M of the true gradient, and S = batch / start. With noise_scale = V * start / M, as
    GradientNoise.scale gives it, that is S * (noise_scale + start) / (noise_scale + batch): from 1
    without noise to S where the gradient is noise. A step then counts for as many of batch `start`
    as the factor says, also in a schedule of the learning rate.
    """
    ratio = _checked(batch, start)
    if not noise_scale >= 0:
        raise ValueError(f"a noise scale of {noise_scale}: it is 0 or more")
    if math.isinf(noise_scale):
        return ratio
    return ratio * (noise_scale + start) / (noise_scale + batch)


def efficiency(batch: int, start: int, noise_scale: float) -> float:
    """How much a sample teaches in batches of `batch`, where it is 1 in batches of `start`.

    The statistical efficiency of Qiao et al., "Pollux", OSDI 2021: adascale() / linear().
    """
    return adascale(batch, start, noise_scale) / linear(batch, start)


@contextlib.contextmanager
def scaled(optimizer: Any, factor: float) -> Iterator[None]:
    """Multiplies the learning rates of an optimizer by `factor` inside a with statement only.

    Schedulers and checkpoints so keep the rates of the program's own batch, and a restart with
    another batch has nothing to undo.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * factor
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate


def _checked(batch: int, start: int) -> float:
    if batch < 1 or start < 1:
        raise ValueError(f"batches of {batch} and {start} samples: both must be at least 1")
    return batch / start
