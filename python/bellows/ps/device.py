# SPDX-License-Identifier: Apache-2.0
"""Parameters on GPUs: their gradients to the memory of bellows-ps while backward goes on, and the
weights back. Imported only where the program uses torch."""

import threading
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

from . import _lib


class Cuda:
    """What is needed of torch.cuda. A stream has wait_stream and, as a number, cuda_stream."""

    def device_of(self, tensor: torch.Tensor) -> Optional[Any]:
        """The tensor's device; None: it is in the memory of the node."""
        return tensor.device if tensor.is_cuda else None

    def new_stream(self, device: Any) -> Any:
        return torch.cuda.Stream(device)

    def current_stream(self, device: Any) -> Any:
        return torch.cuda.current_stream(device)

    def use(self, stream: Any) -> Any:
        """Within it, the stream is that of what torch computes."""
        return torch.cuda.stream(stream)

    def record(self, tensor: torch.Tensor, stream: Any) -> None:
        """The tensor's memory is not used again before the stream is done with it."""
        tensor.record_stream(stream)


class _Stamp(NamedTuple):
    """A gradient as it was once."""

    memory: torch.Tensor  #: its own, which no other has as long as this lives
    version: int

    @classmethod
    def of(cls, grad: torch.Tensor) -> "_Stamp":
        return cls(grad.detach(), grad._version)

    def is_still(self, grad: torch.Tensor) -> bool:
        return grad.data_ptr() == self.memory.data_ptr() and grad._version == self.version


class _Param:
    """A parameter on a GPU, and what became of its gradient since the last step."""

    def __init__(self, number: int, param: torch.Tensor, device: Any) -> None:
        self.number = number
        self.param = param
        self.device = device
        self.made = 0  #: how often backward has made it or added to it
        self.due = 1  #: it is copied when it was made so often; 0: by step only
        self.last: Optional[_Stamp] = None  #: as backward made it last
        self.copied: Optional[_Stamp] = None  #: as it was copied last


#: Whether torch's own functions that change gradients can be seen to have done so. Before 2.1,
#: which this hook came with, clip_grad_value_ changed them by way of `.data`.
CHANGES_ARE_SEEN = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def _on_gradient(param: torch.Tensor, call: Callable[[], None]) -> Any:
    """Calls it whenever backward has made or added to the parameter's gradient, with the stream on
    which it did so the current one, until `remove` of what this returns, or its end."""
    if CHANGES_ARE_SEEN:
        return param.register_post_accumulate_grad_hook(lambda _: call())
    # torch 2.0 and before: the node of the graph that does it, which nothing else keeps alive.
    with torch.enable_grad():
        node = param.expand_as(param).grad_fn.next_functions[0][0]
    handle = node.register_hook(lambda *_: call())
    handle.node = node
    return handle


class DeviceParams:
    """The parameters of a learner that are on GPUs, by their numbers.

    Copies are asked for in a stream of its own for each GPU, which waits for the program's stream,
    so that they go on while backward computes the gradients of other layers. The copies that a
    gradient's last step has shown to be in vain are not made again: of those that several backward
    add to, only the last is copied early, and none of one that the program changes before step.
    """

    def __init__(
        self,
        cuda: Cuda,
        params: List[torch.Tensor],
        kind: torch.dtype,
        early: bool,
        sparse: List[bool],
    ) -> None:
        """`kind`: the type of what is handed over. `early`: copies may begin in backward. `sparse`:
        of which the gradients have some rows, and are none of this class's business."""
        self._cuda = cuda
        self._kind = kind
        self._learner: Optional[_lib.Learner] = None  #: None: it has begun no gradient
        # Each GPU's hooks run in a thread of its own.
        self._lock = threading.Lock()
        self._params: Dict[int, _Param] = {}
        for number, param in enumerate(params):
            device = cuda.device_of(param)
            if device is not None:
                self._params[number] = _Param(number, param, device)
        devices = {each.device for each in self._params.values()}
        self._sides = {device: cuda.new_stream(device) for device in devices}
        self._dense = [each for each in self._params.values() if not sparse[each.number]]
        self._hooks = [self._hook(each) for each in self._dense] if early else []

    def _hook(self, each: _Param) -> Any:
        # The parameter may keep the hook.
        owner, number = weakref.ref(self), each.number

        def call() -> None:
            alive = owner()
            if alive is not None:
                alive._made(alive._params[number])

        return _on_gradient(each.param, call)

    def __contains__(self, number: int) -> bool:
        return number in self._params

    @property
    def copies_early(self) -> bool:
        return bool(self._hooks)

    def begin(self, learner: _lib.Learner) -> None:
        """The learner has begun a gradient: from here on copies may be made."""
        for each in self._params.values():
            each.copied = None
        self._learner = learner

    def _made(self, each: _Param) -> None:
        grad = each.param.grad
        if grad is None or grad.layout != torch.strided:
            return
        with self._lock:
            each.made += 1
            each.last = _Stamp.of(grad)
            # To begin here could mean to wait for the server, and backward with it.
            if self._learner is not None and each.made == each.due:
                self._copy(self._learner, each, grad)
                each.copied = each.last

    def _copy(self, learner: _lib.Learner, each: _Param, grad: torch.Tensor) -> None:
        side = self._sides[each.device]
        side.wait_stream(self._cuda.current_stream(each.device))
        # Its memory may be free, for the program's stream, before the copy begins.
        self._cuda.record(grad, side)
        dense = grad
        if grad.dtype != self._kind or not grad.is_contiguous():
            with self._cuda.use(side), torch.no_grad():
                dense = grad.to(self._kind).contiguous()
            self._cuda.record(dense, side)
        learner.gradient_from_device(each.number, dense.data_ptr(), side.cuda_stream)

    def fill(self, learner: _lib.Learner) -> None:
        """Copies those gradients that have not been copied as they are now; zeros for none."""
        for each in self._dense:
            grad = each.param.grad
            if grad is None:
                # Not by the processor: an early copy may be under way to the same place.
                self._copy(learner, each, torch.zeros_like(each.param))
            elif grad.layout != torch.strided:
                self._copy(learner, each, grad.to_dense())
            elif each.copied is None or not each.copied.is_still(grad):
                self._copy(learner, each, grad)
            if each.last is not None:
                in_vain = grad is None or not each.last.is_still(grad)
                each.due = 0 if in_vain else each.made

    def end(self) -> None:
        """The gradients are handed over, and no copy of them is under way any more."""
        self._learner = None
        for each in self._params.values():
            each.made, each.last, each.copied = 0, None, None

    def take_weights(self, learner: _lib.Learner) -> None:
        """Copies what was pulled to the parameters, behind all that the program has asked its GPUs
        for, and before all that it asks for from here on."""
        for device, side in self._sides.items():
            side.wait_stream(self._cuda.current_stream(device))
        for each in self._params.values():
            self._take(learner, each, self._sides[each.device])
        for device, side in self._sides.items():
            self._cuda.current_stream(device).wait_stream(side)

    def _take(self, learner: _lib.Learner, each: _Param, side: Any) -> None:
        own = dense = each.param.detach()
        if not own.is_contiguous():
            with self._cuda.use(side):
                dense = torch.empty_like(own, memory_format=torch.contiguous_format)
        self._cuda.record(own, side)
        learner.weights_to_device(each.number, dense.data_ptr(), side.cuda_stream)
        if dense is not own:
            with self._cuda.use(side), torch.no_grad():
                own.copy_(dense)

    def close(self) -> None:
        """Lets go of the parameters and the learner."""
        self.end()
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._dense, self._params = [], [], {}
