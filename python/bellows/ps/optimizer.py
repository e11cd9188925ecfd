# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a learner. Imported only where the program uses torch."""

import math
import os
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch

from . import _lib
from .device import CHANGES_ARE_SEEN, Cuda, DeviceParams
from .errors import InvalidError, ParamServerError
from .groups import Schedule, grouped, set_groups, set_schedule
from .rules import config_of, rates_of
from .sparse import put_rows, set_widths, widths_of


def _wait_ms(wait: float) -> int:
    if math.isinf(wait) and wait > 0:
        return -1
    return min(max(0, int(wait * 1000)), 2**31 - 1)


def _checked(params: Iterable[Any]) -> List[torch.nn.Parameter]:
    """Each once, without those that are never trained."""
    chosen: Dict[int, Any] = {}
    places: Dict[int, int] = {}
    for number, p in enumerate(params):
        if not isinstance(p, torch.Tensor):
            raise InvalidError(f"parameter {number} is a {type(p).__name__} and no tensor")
        if id(p) in chosen or not p.requires_grad or p.numel() == 0:
            continue
        if not p.is_leaf:
            raise InvalidError(f"parameter {number} is computed from others (it is no leaf)")
        where = p.device.type in ("cpu", "cuda")
        if not where or p.dtype != torch.float32 or p.layout != torch.strided:
            raise InvalidError(
                f"parameter {number} is {p.dtype} on {p.device}: bellows-ps trains weights of "
                "float32, in the memory of the node or of GPUs of NVIDIA's"
            )
        same = places.setdefault(p.data_ptr(), number)
        if same != number:
            raise InvalidError(
                f"parameters {same} and {number} have the same memory and are two objects: with "
                "bellows-ps each would get its own; use one Parameter in both places"
            )
        chosen[id(p)] = p
    if not chosen:
        raise InvalidError("there is no parameter that requires a gradient")
    return list(chosen.values())


def _view(learner: _lib.Learner, address: int, shape: torch.Size, dtype: Any) -> torch.Tensor:
    size = shape.numel() * torch.finfo(dtype).bits // 8
    # torch takes a buffer of ctypes for writable, so it has nothing to warn of.
    return torch.frombuffer(learner.buffer(address, size), dtype=dtype).reshape(shape)


class Optimizer:
    """Trains parameters that all learners of a bellows-ps have in common, in a loop as it is with
    torch.optim: zero_grad, backward, step.

    The first learner's parameters are the weights to begin with; all learners name the same
    parameters, in the same order, and the same terms. From here on the parameters' data are memory
    of the parameter server, in C order, which can only be read: a program that writes to them, as
    load_state_dict or an Embedding with max_norm do, ends with SIGSEGV. With `copy`, each step
    copies the weights to the parameters' own memory instead.

    Parameters on GPUs of NVIDIA's keep their memory too. Their gradients are copied to the memory
    of the parameter server, and the weights back to them, in streams of their own; with `early`,
    while backward goes on. What changes a gradient between backward and step() counts if it changes
    the tensor's version, as torch's functions do; **changes by way of `.data`, numpy or other
    libraries' kernels do not, and are lost** unless `early` is False. By default it is True where
    torch is 2.1 or later: clip_grad_value_ of older ones uses `.data`.

    step() takes the gradients away: p.grad is None from then until zero_grad or backward makes
    another. Parameters that require no gradient are left alone; one that requires one and has none
    counts as having zeros.

    `rule` is "sgd", "momentum", "adagrad", "adam", "adamw" or "rmsprop", and lr, momentum, betas,
    alpha, eps, weight_decay, nesterov and initial_accumulator_value mean what they do in torch,
    with its defaults. As with torch, `params` may be groups: dictionaries with the key "params",
    and "lr" and "weight_decay" of their own. `schedule` is a StepSchedule or CosineSchedule, before
    which the rates rise from 0 in a line for `warm_up` updates; updates are those of all learners.
    `clip_value` is the largest magnitude that an element of a gradient keeps, and `clip_norm` the
    largest Euclidean norm of all gradients of a step together.
    `sparse` are those of the parameters that have sparse gradients, as Embedding(sparse=True) makes
    them: a step updates the rows that these name, as SGD, Adagrad and SparseAdam of torch do, and
    costs no more.
    `gradient_type` is what gradients are sent as. `socket` is that of bellows-ps, by default
    BELLOWS_PS_SOCKET of the environment; `wait` is how many seconds one call may wait for it, or
    math.inf. With `overlap`, step() does not wait until its gradient is applied, so that the next
    weights may lack it.

    One thread at a time may use it, in the process that made it. Errors are ParamServerErrors.
    """

    _cuda = Cuda()

    def __init__(
        self,
        params: Iterable[Any],
        lr: Optional[float] = None,
        rule: str = "sgd",
        *,
        momentum: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        alpha: Optional[float] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        nesterov: Optional[bool] = None,
        initial_accumulator_value: Optional[float] = None,
        clip_value: Optional[float] = None,
        clip_norm: Optional[float] = None,
        schedule: Optional[Schedule] = None,
        warm_up: int = 0,
        sparse: Iterable[Any] = (),
        gradient_type: str = "float32",
        copy: bool = False,
        overlap: bool = False,
        early: Optional[bool] = None,
        socket: Optional[str] = None,
        wait: float = 60.0,
    ) -> None:
        self._learner: Optional[_lib.Learner] = None
        given = {
            "lr": lr,
            "momentum": momentum,
            "betas": betas,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "initial_accumulator_value": initial_accumulator_value,
        }
        kind = str(gradient_type).rpartition(".")[2]
        group = grouped(params)
        rates = rates_of(rule, given, group.terms)
        if rates and lr is None:
            # Each group has one.
            given["lr"] = rates[0][0]
        config = config_of(rule, kind, clip_value, clip_norm, given)
        set_schedule(config, schedule, warm_up)
        config.socket = None if socket is None else os.fsencode(socket)
        config.wait_ms = _wait_ms(wait)
        self._params = _checked(group.params)
        number_of = dict(zip(map(id, reversed(group.params)), reversed(group.groups)))
        set_groups(config, rates, [number_of[id(p)] for p in self._params] if rates else [])
        #: Of the rows of `sparse`, in the order of the parameters; 0 for others.
        self._widths = widths_of(self._params, sparse)
        set_widths(config, self._widths)
        self._copy = copy
        self._overlap = overlap
        self._pid = os.getpid()
        # Kept until the library has read them.
        initial = [p.detach().cpu().contiguous() for p in self._params]
        learner = _lib.Learner(
            config, [p.numel() for p in self._params], [t.data_ptr() for t in initial]
        )
        self._gradient_type = getattr(torch, kind)
        #: Tensors by their addresses, of which there are few, that come again and again.
        self._weights: Dict[int, torch.Tensor] = {}
        self._payloads: Dict[int, List[torch.Tensor]] = {}
        self._places: Optional[List[torch.Tensor]] = None  #: where the next gradients belong
        self._device = DeviceParams(
            self._cuda,
            self._params,
            self._gradient_type,
            CHANGES_ARE_SEEN if early is None else early,
            [bool(width) for width in self._widths],
        )
        self._learner = learner
        self.pull()
        self._begin_early()

    def __enter__(self) -> "Optimizer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            self.close()
        except ParamServerError:
            # The first error is the one to show.
            if kind is None:
                raise

    def _open(self) -> _lib.Learner:
        if self._learner is None:
            raise InvalidError("the optimizer is closed")
        if os.getpid() != self._pid:
            raise InvalidError("this process was forked from a learner: it needs its own optimizer")
        return self._learner

    @property
    def closed(self) -> bool:
        return self._learner is None

    @property
    def learner(self) -> int:
        """This learner's number, from 0 on; unique among those that take part."""
        return self._open().number

    @property
    def unpinned(self) -> str:
        """Why copies between GPUs and the memory of bellows-ps are slower than they could be: a
        sentence where CUDA refused to page-lock memory; "" otherwise."""
        return self._open().unpinned

    @property
    def updates(self) -> int:
        """How many updates the weights that were pulled have had, of all learners together."""
        return self._open().updates

    def _begin(self) -> List[torch.Tensor]:
        """Where the next gradients belong, once the one before the last is applied."""
        if self._places is None:
            learner = self._open()
            learner.begin()
            first = learner.gradient(0)
            if first not in self._payloads:
                self._payloads[first] = [
                    _view(learner, learner.gradient(i), p.shape, self._gradient_type)
                    for i, p in enumerate(self._params)
                ]
            self._places = self._payloads[first]
            self._device.begin(learner)
        return self._places

    def _begin_early(self) -> None:
        """So that hooks of parameters on GPUs find a place, and never wait for one. At the end of a
        step, what this waits for was handed over a whole step ago, or is applied already."""
        if self._device.copies_early:
            self._begin()

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Sets gradients to zero, in the memory that step() hands over, so that backward adds to
        them there and nothing is copied; or to None, so that step() copies what backward made.
        Those on GPUs become None either way."""
        self._open()
        if set_to_none or self._gradient_type != torch.float32:
            for p in self._params:
                p.grad = None
            return
        for i, (p, place) in enumerate(zip(self._params, self._begin())):
            if i in self._device:
                # Backward makes another, which costs less than to add to zeros.
                p.grad = None
            elif p.is_contiguous() and not self._widths[i]:
                place.zero_()
                # Another tensor of the same memory: p.grad.data = ... leaves `place` as it is.
                p.grad = place.detach()
            else:
                # With `copy`, autograd wants a gradient to lie as its parameter does. A sparse one
                # has memory of its own.
                p.grad = None

    def step(self, closure: Optional[Callable[[], Any]] = None, *, scale: float = 1.0) -> Any:
        """Hands the gradients over, multiplied with `scale` when they are applied, waits until they
        are (unless `overlap`), and pulls. `closure` may compute them; what it returns is returned.

        TimeoutError, UnavailableError: the gradients are handed over all the same if p.grad is None
        afterwards, and count once. DeviceError: they are not if p.grad is not None, and the next
        step() copies all of them again.
        """
        learner = self._open()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        places = self._begin()
        # Handed over, the server reads it; after an error of CUDA's, it has to be begun again.
        self._places = None
        self._fill(places)
        self._device.fill(learner)
        learner.push(scale)
        self._device.end()
        for p in self._params:
            p.grad = None
        if not self._overlap:
            learner.drain()
        self.pull()
        self._begin_early()
        return loss

    def _fill(self, places: List[torch.Tensor]) -> None:
        with torch.no_grad():
            for i, (p, place) in enumerate(zip(self._params, places)):
                grad = p.grad
                if self._widths[i]:
                    put_rows(self._open(), i, place, grad)
                elif i in self._device:
                    continue
                elif grad is None:
                    place.zero_()
                elif grad.is_sparse:
                    place.copy_(grad.to_dense())
                elif grad.data_ptr() != place.data_ptr() or not grad.is_contiguous():
                    place.copy_(grad)

    def pull(self) -> None:
        """Gives the parameters the newest weights, as step() does at its end."""
        learner = self._open()
        learner.pull()
        with torch.no_grad():
            for i, p in enumerate(self._params):
                if i in self._device:
                    continue
                address = learner.weights(i)
                view = self._weights.get(address)
                if view is None:
                    view = _view(learner, address, p.shape, torch.float32)
                    self._weights[address] = view
                if self._copy:
                    p.copy_(view)
                else:
                    p.data = view
        self._device.take_weights(learner)

    def drain(self) -> None:
        """Waits until all gradients that were handed over are applied."""
        self._open().drain()

    def close(self) -> None:
        """Leaves, once all that was handed over is applied. The parameters get copies of the newest
        weights, in memory of their own.

        Other tensors of the weights, such as those of a state_dict(), keep this learner's place
        until they are gone: a RuntimeWarning says so.
        """
        if self._learner is None:
            return
        learner = self._open()
        try:
            learner.drain()
            self.pull()
        finally:
            self._forget()
        still = weakref.ref(learner)
        del learner
        if still() is not None:
            warnings.warn(
                "tensors of the weights, or their gradients, are still in use: this learner leaves "
                "when they are gone; clone what is to stay",
                RuntimeWarning,
                stacklevel=2,
            )

    def _forget(self) -> None:
        """Lets go of all memory of the store."""
        for i, p in enumerate(self._params):
            p.grad = None
            if not self._copy and i not in self._device:
                p.data = p.data.clone()
        self._device.close()
        self._weights, self._payloads, self._places = {}, {}, None
        self._learner = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"learner {self.learner}"
        return f"<bellows.ps optimizer of {len(self._params)} parameters, {state}>"
