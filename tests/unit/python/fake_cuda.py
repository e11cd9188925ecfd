# SPDX-License-Identifier: Apache-2.0
"""GPUs for the tests of bellows.ps.device: their memory is the machine's, and the streams are those
of tests/gpu/fake_driver.c, whose copies happen as late as real ones may."""

import atexit
import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from ctypes import byref, c_void_p
from pathlib import Path

import torch

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../gpu/fake_driver.c")


@functools.lru_cache(maxsize=None)
def driver():
    """The library, loaded once, as a process does it."""
    directory = tempfile.mkdtemp(prefix="bellows-cuda-")
    atexit.register(shutil.rmtree, directory)
    library = os.path.join(directory, "libcuda.so.1")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-DGPUS=2", "-o", library, SOURCE], check=True, timeout=60
    )
    return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


def call(name, *arguments):
    code = getattr(driver(), name)(*arguments)
    if code != 0:
        # As torch has it.
        raise RuntimeError(f"{name} gives {code}")


@contextlib.contextmanager
def _faults(line):
    """What is wrong with the driver for this program."""
    program = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    path = Path(driver()._name).with_name(f"{program}.faults")
    path.write_text(line, encoding="utf-8")
    try:
        yield
    finally:
        path.unlink()


def fault(number):
    """Of the calls that follow, the one of this number fails, from 1 on."""
    return _faults(f"fail {driver().fake_calls() + number} 2\n")


def writable_only():
    """It page-locks no memory that is to be read only."""
    return _faults("writable 1\n")


class Stream:
    def __init__(self, device):
        self._context, self._stream = c_void_p(), c_void_p()
        call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        with self._current():
            call("cuStreamCreate", byref(self._stream), 1)
        #: What the stream has to be done with before it is freed.
        self.recorded = []

    @contextlib.contextmanager
    def _current(self):
        call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            call("cuCtxPopCurrent_v2", byref(c_void_p()))

    @property
    def cuda_stream(self):
        return self._stream.value

    def wait_stream(self, other):
        event = c_void_p()
        with other._current():
            call("cuEventCreate", byref(event), 2)
            call("cuEventRecord", event, other._stream)
        with self._current():
            call("cuStreamWaitEvent", self._stream, event, 0)

    def copy(self, to, values):
        """A kernel, which writes the values there when the stream comes to it."""
        # Not the tensor, which autograd makes a gradient of only if nobody else has it.
        self.recorded += [values, to.storage()]
        with self._current():
            call(
                "cuMemcpyHtoDAsync_v2",
                c_void_p(to.data_ptr()),
                c_void_p(values.data_ptr()),
                ctypes.c_size_t(4 * to.numel()),
                self._stream,
            )

    def run(self):
        """Does all that it was asked for, and what that waits for."""
        call("cuStreamSynchronize", self._stream)


class FakeCuda:
    """What bellows.ps.device needs of torch.cuda. These parameters are on its GPUs, 0 and 1, in
    turns: the others are in the memory of the node."""

    def __init__(self, params):
        self._devices = {id(p): number % 2 for number, p in enumerate(params)}
        self.program = [Stream(0), Stream(1)]
        self.sides = {}

    def device_of(self, tensor):
        return self._devices.get(id(tensor))

    def new_stream(self, device):
        self.sides[device] = Stream(device)
        return self.sides[device]

    def current_stream(self, device):
        return self.program[device]

    @contextlib.contextmanager
    def use(self, stream):
        # What torch computes here is computed at once, so that all before it has to be.
        stream.run()
        yield

    def record(self, tensor, stream):
        stream.recorded.append(tensor)

    def run(self):
        """The program's streams come to their ends: what it computes next, it computes at once."""
        for stream in self.program:
            stream.run()


class Late(torch.autograd.Function):
    """Gives a gradient whose values are computed when the stream comes to it."""

    @staticmethod
    def forward(ctx, param, values, stream):
        ctx.stream = stream
        ctx.save_for_backward(values)
        return param.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        gradient = torch.full_like(ctx.saved_tensors[0], float("nan"))
        ctx.stream.copy(gradient, ctx.saved_tensors[0])
        return gradient, None, None
