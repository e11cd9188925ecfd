# SPDX-License-Identifier: Apache-2.0
"""Learners of one node that train one set of weights by bellows-ps: see python/README.md."""

from typing import TYPE_CHECKING, Any

from .errors import (
    DeviceError,
    FullError,
    InvalidError,
    OutOfMemoryError,
    ParamServerError,
    TimeoutError,
    UnavailableError,
)
from .groups import CosineSchedule, StepSchedule

if TYPE_CHECKING:
    from .optimizer import Optimizer

__all__ = [
    "CosineSchedule",
    "DeviceError",
    "FullError",
    "InvalidError",
    "Optimizer",
    "OutOfMemoryError",
    "ParamServerError",
    "StepSchedule",
    "TimeoutError",
    "UnavailableError",
]


def __getattr__(name: str) -> Any:
    # It imports torch, which a program that only imports bellows may lack.
    if name != "Optimizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .optimizer import Optimizer

    return Optimizer
