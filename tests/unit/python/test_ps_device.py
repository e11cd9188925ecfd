# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import signal
import subprocess
import sys
import threading
import unittest
import warnings
from unittest import mock

from bellows import ps
from ps_support import Server, ServerTestCase, is_stopped, server_of
from support import SECONDS, missing

NO_TORCH = missing("torch", "numpy")
if not NO_TORCH:
    import torch
    from bellows.ps import _lib, device, optimizer as module
    from fake_cuda import FakeCuda, Late, driver, fault, writable_only
    from ps_network import loss_of, network
    from torch import nn


def ones(*shape):
    return nn.Parameter(torch.zeros(*shape))


@contextlib.contextmanager
def as_torch_2():
    """With Tensor.register_post_accumulate_grad_hook, which torch has had since 2.1."""

    def register(param, hook):
        # As there, a hook stays as long as its parameter.
        param.kept = param.expand_as(param).grad_fn.next_functions[0][0]
        return param.kept.register_hook(lambda *_: hook(param))

    name = "register_post_accumulate_grad_hook"
    with mock.patch.object(torch.Tensor, name, register, create=True):
        with mock.patch.object(device, "CHANGES_ARE_SEEN", True):
            yield


@unittest.skipIf(NO_TORCH, NO_TORCH)
class OnDevices(ServerTestCase):
    def setUp(self):
        super().setUp()
        driver()
        self.copied = []
        copy = _lib.Learner.gradient_from_device

        def noted(learner, tensor, *more):
            self.copied.append(tensor)
            copy(learner, tensor, *more)

        patch = mock.patch.object(_lib.Learner, "gradient_from_device", noted)
        patch.start()
        self.addCleanup(patch.stop)

    def optimizer(self, params, on_device=None, **terms):
        params = list(params)
        cuda = FakeCuda(params if on_device is None else on_device)
        with mock.patch.object(module.Optimizer, "_cuda", cuda):
            return ps.Optimizer(params, **{"lr": 1, "early": True, **terms}), cuda

    def copies(self):
        """The tensors whose gradients were copied since the last call."""
        copied, self.copied = self.copied, []
        return copied

    def check(self, cuda, param, expected):
        cuda.run()
        self.assertEqual(param.tolist(), expected)

    def mark_places(self, optimizer):
        for place in optimizer._begin():
            place.fill_(7)

    def in_places(self, optimizer):
        return [place.flatten()[-1].item() for place in optimizer._begin()]

    def test_overlap(self):
        """a gradient is copied before step, behind what computes it, and the weights come back"""
        for how in contextlib.nullcontext, as_torch_2:
            server = Server(self, how.__name__, "--threads=2")
            self.addCleanup(server.close)
            with how():
                a, b = ones(3, 4), ones(5)
                optimizer, cuda = self.optimizer([a, b], socket=server.socket)
            with optimizer:
                for step in range(1, 4):
                    optimizer.zero_grad()
                    self.mark_places(optimizer)
                    losses = []
                    for p in b, a:
                        stream = cuda.program[cuda.device_of(p)]
                        losses.append(Late.apply(p, torch.full_like(p, step), stream))
                    losses[0].backward()
                    self.assertEqual(self.copies(), [1])
                    losses[1].backward()
                    self.assertEqual(self.copies(), [0])
                    # None of them has happened yet.
                    for value in 7, step:
                        self.assertEqual(self.in_places(optimizer), [value, value])
                        for side in cuda.sides.values():
                            side.run()
                    optimizer.step()
                    self.assertEqual(self.copies(), [])
                    self.check(cuda, a, [[-sum(range(step + 1))] * 4] * 3)
                    self.check(cuda, b, [-sum(range(step + 1))] * 5)
                    self.assertIsNone(a.grad)
                self.assertEqual(optimizer.updates, 3)

    def test_weights(self):
        """what the program asked for before a pull has the old weights, and what follows the new"""
        self.serve()
        weight, host = ones(100), ones(100)
        optimizer, cuda = self.optimizer([weight])
        with optimizer, ps.Optimizer([host], lr=1) as other:
            for step in range(3):
                host.grad = torch.ones(100)
                other.step()
                before, after = torch.zeros(100), torch.zeros(100)
                cuda.program[0].copy(before, weight.detach())
                optimizer.pull()
                cuda.program[0].copy(after, weight.detach())
                for stream in cuda.sides[0], cuda.program[0]:
                    stream.run()
                self.assertEqual(before.tolist(), [-step] * 100)
                self.assertEqual(after.tolist(), [-step - 1] * 100)
            self.assertIn(weight.data_ptr(), [x.data_ptr() for x in cuda.sides[0].recorded])

    def test_changed(self):
        """what changes a gradient before step counts, and it is copied no more than it needs"""
        self.serve()

        def clip(p):
            # To 1 each, but for what torch adds to the norm.
            torch.nn.utils.clip_grad_norm_([p], 4)
            p.grad.round_()

        def replace(p):
            p.grad = p.grad / 2

        def replace_data(p):
            p.grad.data = p.grad.data / 2

        def multiply(p):
            torch._foreach_mul_([p.grad], 0.5)

        def accumulate(p):
            for _ in range(2):
                (p.sum() * -0.5).backward()

        def nothing(_):
            pass

        # Of the first step, of the second, and of the third without the change.
        ways = {
            clip: ([0, 0], [0], [0]),
            replace: ([0, 0], [0], [0]),
            replace_data: ([0, 0], [0], [0]),
            multiply: ([0, 0], [0], [0]),
            accumulate: ([0, 0], [0], [0]),
            nothing: ([0], [0], [0]),
        }
        weight = ones(4, 4)
        expected = 0
        optimizer, cuda = self.optimizer([weight])
        with optimizer:
            for way, copies in ways.items():
                for number, copied in enumerate(copies):
                    scale = 1 if way is nothing or number == 2 else 2
                    optimizer.zero_grad()
                    (weight.sum() * scale).backward()
                    (way if number < 2 else nothing)(weight)
                    optimizer.step()
                    expected -= 1
                    self.check(cuda, weight, [[expected] * 4] * 4)
                    self.assertEqual(self.copies(), copied, (way, number))
                # As it was before.
                optimizer.zero_grad()
                (weight.sum() * 0).backward()
                self.assertEqual(self.copies(), [0], way)
                optimizer.step()
                self.assertEqual(self.copies(), [])

    def test_unseen(self):
        """what changes no version counts where no copy is early, as by default with an old torch"""
        server = self.serve()
        for early in (False,) if device.CHANGES_ARE_SEEN else (False, None):
            weight = ones(3)
            optimizer, cuda = self.optimizer([weight], early=early, socket=server.socket)
            with optimizer:
                weight.data.zero_()
                self.copies()
                (weight.sum() * 5).backward()
                self.assertEqual(self.copies(), [])
                weight.grad.data.clamp_(-1, 1)
                before = optimizer.updates
                optimizer.step()
                self.check(cuda, weight, [-before - 1] * 3)

    def test_none(self):
        """a parameter without a gradient has zeros, also after one that was copied and dropped"""
        self.serve()
        weight, other = ones(3), ones(3)
        optimizer, cuda = self.optimizer([weight, other])
        with optimizer:
            for to_none in False, True:
                (weight.sum() + other.sum()).backward()
                optimizer.zero_grad(set_to_none=to_none)
                self.assertIsNone(weight.grad)
                optimizer.step()
                self.check(cuda, weight, [0] * 3)
            (weight.sum() + other.sum()).backward()
            weight.grad = None
            optimizer.step()
            self.check(cuda, weight, [0] * 3)
            self.check(cuda, other, [-1] * 3)

    def test_types(self):
        """gradients of 16 bits are rounded behind what computes them"""
        for kind in torch.bfloat16, torch.float16:
            server = Server(self, str(kind))
            self.addCleanup(server.close)
            params = [ones(100), ones(100)]
            values = [torch.randn(100), torch.randn(100)]
            optimizer, cuda = self.optimizer(params, gradient_type=kind, socket=server.socket)
            with optimizer:
                for p, value in zip(params, values):
                    Late.apply(p, value, cuda.program[cuda.device_of(p)]).backward()
                self.assertEqual(self.copies(), [0, 1])
                optimizer.step()
                for p, value in zip(params, values):
                    self.check(cuda, p, (-value.to(kind).float()).tolist())

    def test_sparse(self):
        """sparse gradients are made dense, in memory that stays until they are copied"""
        self.serve()
        params = [ones(50, 20) for _ in range(6)]
        optimizer, cuda = self.optimizer(params)
        with optimizer:
            for number, p in enumerate(params):
                p.grad = torch.full((50, 20), number + 1.0).to_sparse()
            optimizer.step()
            for number, p in enumerate(params):
                self.check(cuda, p, [[-number - 1] * 20] * 50)

    def test_rows(self):
        """of a gradient with some rows these are handed over, and all weights come back"""
        self.serve()
        table, other = ones(50, 20), ones(3)
        optimizer, cuda = self.optimizer([table, other], sparse=[table])
        with optimizer:
            for _ in range(2):
                rows = torch.ones(2, 20)
                table.grad = torch.sparse_coo_tensor([[3, 7]], rows, (50, 20))
                other.grad = torch.ones(3)
                optimizer.step()
            self.assertEqual(self.copies(), [1, 1])
            self.check(cuda, other, [-2] * 3)
            expected = [[-2.0 if row in (3, 7) else 0.0] * 20 for row in range(50)]
            self.check(cuda, table, expected)

    def test_kinds(self):
        """parameters of both memories, tied, transposed and frozen ones"""
        self.serve()
        net = nn.Module()
        net.a = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        net.b = net.a
        net.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        net.one = nn.Parameter(torch.tensor(5.0))
        net.host = ones(3)
        place, strides = net.a.data_ptr(), net.a.stride()
        params = [net.a, net.b, net.frozen, net.host, net.one]
        optimizer, cuda = self.optimizer(params, [net.a, net.one, net.frozen])
        with optimizer:
            for step in range(1, 4):
                optimizer.zero_grad()
                cuda.run()
                (net.a.sum() + net.b[0].sum() + net.one + net.host.sum() * 2).backward()
                self.assertEqual(sorted(self.copies()), [0, 2])
                optimizer.step()
                rows = zip((0, 1, 2), (2 * step, step, step))
                self.check(cuda, net.a, [[row - less, row + 3 - less] for row, less in rows])
                self.check(cuda, net.one, 5 - step)
                self.check(cuda, net.host, [-2 * step] * 3)
            self.assertEqual((net.a.data_ptr(), net.a.stride()), (place, strides))
        self.assertEqual(net.host.tolist(), [-6] * 3)

    def test_training(self):
        """a training is the same, bit by bit, on devices, in the node's memory, and on both"""
        results = []
        for number, on_device in enumerate([(), (0, 1, 2, 3), (1, 2)]):
            server = Server(self, f"socket{number}", "--threads=2")
            self.addCleanup(server.close)
            net = network()
            params = list(net.parameters())
            optimizer, cuda = self.optimizer(
                params, [params[i] for i in on_device], lr=0.1, rule="momentum", clip_norm=0.5,
                socket=server.socket,
            )
            with optimizer:
                for step in range(30):
                    optimizer.zero_grad()
                    cuda.run()
                    loss_of(net, step).backward()
                    optimizer.step()
                cuda.run()
            results.append(params)
        for other in results[1:]:
            self.assertTrue(all(map(torch.equal, results[0], other)))
        self.assertFalse(torch.equal(results[0][0], network()[0].weight))

    def test_wait(self):
        """backward does not wait for a server that is behind"""
        server = self.serve()
        weight = ones(3)
        optimizer, cuda = self.optimizer([weight], overlap=True, wait=0.5)
        with optimizer:
            os.kill(server_of(server.pid), signal.SIGSTOP)
            self.eventually(lambda: is_stopped(server_of(server.pid)))
            weight.sum().backward()
            optimizer.step()
            weight.sum().backward()
            # Two have room, and the next place would be that of the first.
            self.assertRaisesRegex(ps.TimeoutError, "applies nothing", optimizer.step)
            self.assertIsNone(weight.grad)
            self.copies()
            weight.sum().backward()
            self.assertEqual(self.copies(), [])
            os.kill(server_of(server.pid), signal.SIGCONT)
            self.eventually(lambda: self.took(optimizer.drain))
            optimizer.step()
            self.eventually(lambda: self.took(optimizer.drain))
            optimizer.pull()
            self.check(cuda, weight, [-3] * 3)

    def took(self, call):
        try:
            call()
        except ps.TimeoutError:
            return False
        return True

    def failed(self, call):
        try:
            call()
        except (ps.DeviceError, RuntimeError) as error:
            return str(error)
        return ""

    def test_errors(self):
        """a gradient counts once, whatever call of CUDA fails"""
        self.serve()
        weight, other = ones(3), ones(4)
        optimizer, cuda = self.optimizer([weight, other])
        errors = {"backward": 0, "step": 0, "pull": 0}
        with optimizer:
            for call in range(1, 80):
                optimizer.zero_grad()
                loss = weight.sum() + other.sum()
                with fault(call):
                    where = "backward"
                    why = self.failed(loss.backward)
                    if not why:
                        where = "step"
                        why = self.failed(optimizer.step)
                if why:
                    self.assertRegex(why, "CUDA_ERROR_OUT_OF_MEMORY|gives 2")
                    if weight.grad is None and where == "step":
                        where = "pull"
                        optimizer.pull()
                    elif where == "step":
                        self.copies()
                        optimizer.step()
                        self.assertEqual(self.copies(), [0, 1])
                    else:
                        optimizer.zero_grad()
                        (weight.sum() + other.sum()).backward()
                        # What failed in backward may spoil what was begun.
                        if self.failed(optimizer.step):
                            optimizer.step()
                    errors[where] += 1
                self.check(cuda, weight, [-call] * 3)
                self.check(cuda, other, [-call] * 4)
            self.assertEqual(optimizer.updates, 79)
        self.assertTrue(all(number > 3 for number in errors.values()), errors)

    def test_threads(self):
        """hooks of several GPUs, each in a thread of its own, use the learner one after another"""
        self.serve()
        params = [ones(3), ones(4)]
        inside, together = [], []
        copy = _lib.Learner.gradient_from_device

        def slow(learner, tensor, *more):
            inside.append(tensor)
            together.append(len(inside))
            # As long as the other may need to come here too.
            threading.Event().wait(0.1)
            copy(learner, tensor, *more)
            inside.remove(tensor)

        optimizer, cuda = self.optimizer(params)
        with optimizer, mock.patch.object(_lib.Learner, "gradient_from_device", slow):
            threads = [threading.Thread(target=p.sum().backward) for p in params]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
            optimizer.step()
            self.assertEqual(together, [1, 1])
            for p in params:
                self.check(cuda, p, [-1] * len(p))

    def test_real(self):
        """what tries this on a real GPU says why it cannot, without one"""
        if torch.cuda.is_available():
            self.skipTest("there is a GPU: start tests/gpu/ps_torch.py")
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../gpu/ps_torch.py")
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (77, ""), done.stderr)
        self.assertIn("has no CUDA, or no GPU", done.stderr)

    def test_unpinned(self):
        """memory that cannot be page-locked is used all the same, and the optimizer says so"""
        self.serve()
        weight = ones(3)
        with writable_only():
            optimizer, cuda = self.optimizer([weight])
            weight.sum().backward()
            optimizer.step()
        self.check(cuda, weight, [-1] * 3)
        self.assertRegex(optimizer.unpinned, "copies of weights are slower: CUDA cannot page-lock")
        optimizer.close()

    def test_close(self):
        """close leaves the newest weights where they are, no hook, and nothing in use"""
        for how in contextlib.nullcontext, as_torch_2:
            server = Server(self, how.__name__, "--learners=1")
            self.addCleanup(server.close)
            weight = ones(3)
            place = weight.data_ptr()
            with how():
                optimizer, cuda = self.optimizer([weight], socket=server.socket)
            weight.sum().backward()
            optimizer.step()
            weight.sum().backward()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer.close()
            self.assertEqual((weight.data_ptr(), weight.grad), (place, None))
            self.check(cuda, weight, [-1] * 3)
            self.copies()
            weight.sum().backward()
            self.assertEqual(self.copies(), [])
            self.eventually(lambda: "learner 0 has ended" in server.said())

    def test_forgotten(self):
        """an optimizer that is not closed leaves when it is gone, though its parameters stay"""
        self.serve("--learners=1")
        weight = ones(3)
        optimizer, _ = self.optimizer([weight])
        weight.sum().backward()
        del optimizer
        weight.sum().backward()
        self.optimizer([weight])[0].close()
