# SPDX-License-Identifier: Apache-2.0
"""Optimizers by the names and terms that torch has for them, as the library takes them."""

import math
from typing import Any, Dict, List, NamedTuple, Tuple

from . import _lib
from .errors import InvalidError


class _Rule(NamedTuple):
    number: int
    terms: Dict[str, Any]  #: which it has, with torch's defaults; None: there is no default


_ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
_RULES = {
    "sgd": _Rule(
        _lib.SGD, {"lr": None, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
    ),
    "momentum": _Rule(
        _lib.MOMENTUM, {"lr": None, "momentum": 0.9, "weight_decay": 0.0, "nesterov": False}
    ),
    "adagrad": _Rule(
        _lib.ADAGRAD,
        {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0.0, "initial_accumulator_value": 0.0},
    ),
    "adam": _Rule(_lib.ADAM, _ADAM),
    "adamw": _Rule(_lib.ADAM, {**_ADAM, "weight_decay": 1e-2}),
    "rmsprop": _Rule(
        _lib.RMSPROP,
        {"lr": 1e-2, "alpha": 0.99, "momentum": 0.0, "eps": 1e-8, "weight_decay": 0.0},
    ),
}


def _with_defaults(rule: str, given: Dict[str, Any]) -> Dict[str, Any]:
    known = _RULES[rule].terms
    terms = {**known, **{name: value for name, value in given.items() if value is not None}}
    surplus = sorted(set(terms) - set(known))
    if surplus:
        raise InvalidError(f"the rule {rule} has no {surplus[0]}: it has {', '.join(known)}")
    missing = [name for name, value in terms.items() if value is None]
    if missing:
        raise InvalidError(f"the rule {rule} has no default for {missing[0]}: give one")
    return terms


def _check(name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise InvalidError(f"{name} is {value!r}: it must be a number of at least 0")
    return number


def rates_of(
    rule: str, given: Dict[str, Any], groups: List[Dict[str, Any]]
) -> List[Tuple[float, float]]:
    """Learning rate and weight decay of each group: its own, or those of `given`."""
    rates = []
    for own in groups:
        terms = _with_defaults(rule, {**given, **own})
        rates.append((_check("lr", terms["lr"]), _check("weight_decay", terms["weight_decay"])))
    return rates


def config_of(
    rule: str, gradient_type: str, clip_value: Any, clip_norm: Any, given: Dict[str, Any]
) -> _lib.Config:
    """The library's terms; those of `given` that are None have torch's defaults.

    InvalidError: there is no such rule or type, or the rule has no such term.
    """
    if rule not in _RULES:
        raise InvalidError(f"rule is {rule!r}: it is one of {', '.join(_RULES)}")
    if gradient_type not in _lib.GRADIENT_TYPES:
        raise InvalidError(
            f"gradient_type is {gradient_type!r}: it is one of {', '.join(_lib.GRADIENT_TYPES)}"
        )
    terms = _with_defaults(rule, given)
    config = _lib.Config(
        rule=_RULES[rule].number,
        gradient_type=_lib.GRADIENT_TYPES[gradient_type],
        rate=_check("lr", terms["lr"]),
        weight_decay=_check("weight_decay", terms["weight_decay"]),
        epsilon=_check("eps", terms.get("eps", 0)),
        clip_value=0 if clip_value is None else _check("clip_value", clip_value),
        clip_norm=0 if clip_norm is None else _check("clip_norm", clip_norm),
        initial_state=_check(
            "initial_accumulator_value", terms.get("initial_accumulator_value", 0)
        ),
        decoupled=rule == "adamw",
    )
    betas = terms.get("betas", (terms.get("momentum", 0), terms.get("alpha", 0)))
    names = ("betas", "betas") if "betas" in terms else ("momentum", "alpha")
    config.beta1, config.beta2 = map(_check, names, betas)
    if rule == "sgd" and config.beta1 > 0:
        config.rule = _lib.MOMENTUM
    config.nesterov = bool(terms.get("nesterov", False))
    if config.nesterov and config.beta1 == 0:
        raise InvalidError("nesterov needs a momentum")
    return config
