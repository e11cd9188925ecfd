# SPDX-License-Identifier: Apache-2.0
"""Groups of parameters, and schedules of their learning rates, as torch has them."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _lib
from .errors import InvalidError

#: What may differ between groups.
_TERMS = ("lr", "weight_decay")


class StepSchedule(NamedTuple):
    """lr * factor^floor(n / period) after n updates of all learners, as torch's StepLR."""

    period: int
    factor: float = 0.1


class CosineSchedule(NamedTuple):
    """Half a wave from lr to `lowest` in `period` updates of all learners, as torch's
    CosineAnnealingLR, and `lowest` from then on."""

    period: int
    lowest: float = 0.0


Schedule = Union[StepSchedule, CosineSchedule]


class Grouped(NamedTuple):
    params: List[Any]  #: of all groups
    groups: List[int]  #: of each parameter; empty: there are no groups
    terms: List[Dict[str, Any]]  #: of each group: what it has of its own


def grouped(params: Iterable[Any]) -> Grouped:
    """Parameters, or dictionaries of them with a learning rate and weight decay of their own."""
    every = list(params)
    if not any(isinstance(each, dict) for each in every):
        return Grouped(every, [], [])
    result = Grouped([], [], [])
    for number, group in enumerate(every):
        if not isinstance(group, dict) or "params" not in group:
            raise InvalidError(f"group {number} is no dictionary with the key 'params'")
        surplus = sorted(set(group) - {"params", *_TERMS})
        if surplus:
            raise InvalidError(
                f"group {number} has {surplus[0]}: only {' and '.join(_TERMS)} may differ "
                "between groups"
            )
        members = group["params"]
        members = [members] if hasattr(members, "requires_grad") else list(members)
        result.params.extend(members)
        result.groups.extend([number] * len(members))
        result.terms.append({name: group[name] for name in _TERMS if name in group})
    return result


def set_groups(config: _lib.Config, terms: List[Tuple[float, float]], groups: List[int]) -> None:
    """Learning rate and weight decay of each group, and the group of each tensor."""
    if not terms:
        return
    # The structure keeps them as long as it lives.
    config.groups = len(terms)
    config.group = (_lib.Group * len(terms))(*terms)
    config.group_of = (_lib.c_uint32 * len(groups))(*groups)


def set_schedule(config: _lib.Config, schedule: Optional[Schedule], warm_up: int) -> None:
    if warm_up < 0:
        raise InvalidError(f"warm_up is {warm_up}: it is a number of updates")
    config.warm_up = warm_up
    config.period, config.factor = 1, 1
    if schedule is None:
        return
    if not isinstance(schedule, (StepSchedule, CosineSchedule)):
        raise InvalidError("schedule is no StepSchedule and no CosineSchedule")
    if schedule.period < 1:
        raise InvalidError(f"a schedule's period is {schedule.period}: it is at least 1 update")
    config.period = schedule.period
    if isinstance(schedule, StepSchedule):
        config.schedule, config.factor = _lib.STEP, schedule.factor
    else:
        config.schedule, config.lowest = _lib.COSINE, schedule.lowest
