# SPDX-License-Identifier: Apache-2.0
"""Parameters whose gradients have some rows, as those of torch.nn.Embedding(sparse=True)."""

from typing import Any, Iterable, List

import torch

from . import _lib
from .errors import InvalidError


def widths_of(params: List[torch.Tensor], sparse: Iterable[Any]) -> List[int]:
    """How many elements a row of each parameter has; 0 for those whose gradients are dense."""
    places = {id(p): number for number, p in enumerate(params)}
    widths = [0] * len(params)
    for number, p in enumerate([sparse] if isinstance(sparse, torch.Tensor) else sparse):
        if id(p) not in places:
            raise InvalidError(
                f"tensor {number} of `sparse` is none of the parameters that are trained"
            )
        if p.dim() == 0:
            raise InvalidError(f"tensor {number} of `sparse` is a single number: it has no rows")
        widths[places[id(p)]] = p.numel() // p.shape[0]
    return widths


def set_widths(config: _lib.Config, widths: List[int]) -> None:
    if any(widths):
        # The structure keeps them as long as it lives.
        config.width = (_lib.c_uint64 * len(widths))(*widths)


def put_rows(learner: _lib.Learner, number: int, place: torch.Tensor, grad: Any) -> None:
    """Names the rows of a parameter's gradient and writes them; no gradient has none."""
    if grad is None:
        learner.gradient_rows(number, None, 0)
        return
    if not grad.is_sparse or grad.sparse_dim() != 1:
        kind = f"is sparse in {grad.sparse_dim()} dimensions" if grad.is_sparse else "is dense"
        raise InvalidError(
            f"parameter {number} is one of `sparse`, and its gradient {kind}: "
            "Embedding(sparse=True) makes gradients of rows"
        )
    # Rows ascend, and those that came several times are summed.
    grad = grad.coalesce()
    rows = grad.indices().reshape(-1).cpu().contiguous()
    learner.gradient_rows(number, rows.data_ptr(), rows.numel())
    values = grad.values()
    place.view(-1)[: values.numel()].copy_(values.reshape(-1))
