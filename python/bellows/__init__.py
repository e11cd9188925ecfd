# SPDX-License-Identifier: Apache-2.0
"""Bellows' checkpoints for Python: see python/README.md and libbellows(3)."""

from . import models, pool, ps, rates
from ._lib import Memory
from .regions import Shard
from .checkpoint import Checkpoint
from .errors import (
    AgentError,
    BusyError,
    CorruptError,
    Error,
    FencedError,
    InvalidError,
    MismatchError,
    OutOfMemoryError,
    StorageError,
)
from .noise import GradientNoise
from .sampler import Position, Sampler

__all__ = [
    "AgentError",
    "BusyError",
    "Checkpoint",
    "CorruptError",
    "Error",
    "FencedError",
    "GradientNoise",
    "InvalidError",
    "Memory",
    "MismatchError",
    "OutOfMemoryError",
    "Position",
    "Sampler",
    "Shard",
    "StorageError",
    "models",
    "pool",
    "ps",
    "rates",
]
