# SPDX-License-Identifier: Apache-2.0
import random
import unittest

import bellows
from support import TestCase, missing

NO_TORCH = missing("torch", "numpy")
if not NO_TORCH:
    import numpy as np
    import torch
    from torch import nn

    torch.set_num_threads(1)


class Training:
    """A small model with dropout, batch norm and tied weights, and what trains it."""

    def __init__(self, kind="Adam", seed=1, **options):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        embedding = nn.Embedding(10, 8)
        head = nn.Linear(8, 10)
        head.weight = embedding.weight
        self.model = nn.Sequential(
            embedding, nn.Flatten(), nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), head
        )
        self.optimizer = getattr(torch.optim, kind)(self.model.parameters(), lr=0.01, **options)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: 1 / (1 + s))
        self.sampler = bellows.Sampler(50, 8, 3, 0, 1)
        self.x = torch.arange(200).reshape(50, 4) * 7 % 10
        self.y = self.x.sum(dim=1) % 10
        self.step = 0

    def track(self, ckpt):
        ckpt.track(model=self.model, optimizer=self.optimizer, sampler=self.sampler, rng=True)
        ckpt.track(scheduler=self.scheduler)

    def train(self, steps, ckpt=None):
        losses = []
        # The iteration before was left, after a step that is known.
        self.sampler.start(self.step, self.sampler.position(self.step))
        while steps:
            for batch in self.sampler:
                noise = random.random() + np.random.rand()
                loss = nn.functional.cross_entropy(self.model(self.x[batch]), self.y[batch])
                (loss * noise).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.scheduler.step()
                losses.append(loss.item())
                self.step, steps = self.step + 1, steps - 1
                self.sampler.told(self.step)
                if steps == 0:
                    break
        return losses


OPTIMIZERS = [
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1}),
    ("SGD", {}),
    ("RMSprop", {"centered": True}),
    ("Adagrad", {}),
    ("Rprop", {}),
]


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Continues(TestCase):
    def continues(self, kind, options, saved):
        """Trains 30 steps, and again with a restart from the checkpoint of step `saved`."""
        losses = Training(kind, **options).train(30)
        first = Training(kind, **options)
        with bellows.Checkpoint(dir=f"{self.dir}/{kind}-{len(options)}-{saved}") as ckpt:
            first.track(ckpt)
            again = first.train(saved) if saved else []
            ckpt.save(saved)
            first.train(3)  # changes everything while the save is in flight
        second = Training(kind, seed=9, **options)
        with bellows.Checkpoint(dir=f"{self.dir}/{kind}-{len(options)}-{saved}") as ckpt:
            second.track(ckpt)
            second.step = ckpt.restore()
            self.assertEqual(second.step, saved)
            again += second.train(30 - saved)
        self.assertEqual(losses, again)

    def test_optimizers(self):
        """the losses after a restore are the very bits of those of a run left alone"""
        for kind, options in OPTIMIZERS:
            with self.subTest(kind=kind, options=options):
                self.continues(kind, options, 11)

    def test_before_first_step(self):
        """also from a checkpoint that was made before the optimizer had any state"""
        self.continues("Adam", {}, 0)
        self.continues("SGD", {"momentum": 0.9}, 0)

    def test_restore_into_state(self):
        """also into an optimizer that has made steps already"""
        losses = Training().train(30)
        with self.checkpoint() as ckpt:
            training = Training()
            training.track(ckpt)
            again = training.train(10)
            ckpt.save(10, wait=True)
            training.train(9)
            kept = training.model[2].weight.data_ptr()
            training.step = ckpt.restore()
            self.assertEqual(training.model[2].weight.data_ptr(), kept)
            again += training.train(20)
        self.assertEqual(losses, again)


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Tensors(TestCase):
    def test_types(self):
        """tensors of all types come back, also those that do not lie in C order"""
        types = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool complex64 " \
            "complex128"
        torch.manual_seed(1)
        saved = {}
        for name in types.split():
            dtype = getattr(torch, name)
            saved[f"{name}/c"] = (torch.randn(4, 3) * 9).to(dtype)
            saved[f"{name}/t"] = (torch.randn(4, 3, 5) * 9).to(dtype).permute(2, 0, 1)
            saved[f"{name}/empty"] = torch.empty(0, 3, dtype=dtype)
            saved[f"{name}/scalar"] = (torch.randn(()) * 9).to(dtype)
        saved["conj"] = torch.randn(3, dtype=torch.complex64).conj()
        saved["last"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        wanted = {name: tensor.clone() for name, tensor in saved.items()}
        with self.checkpoint() as ckpt:
            for name, tensor in saved.items():
                ckpt.register(name, tensor)
            ckpt.save(1)
            for tensor in saved.values():
                tensor.zero_()
            self.assertEqual(ckpt.restore(), 1)
        for name, tensor in saved.items():
            self.assertTrue(torch.equal(tensor, wanted[name]), name)

    def test_refused(self):
        """tensors that cannot be saved are refused with a sentence"""
        with self.checkpoint() as ckpt:
            for tensor in (torch.eye(3).to_sparse(), torch.empty(3, device="meta")):
                with self.assertRaisesRegex(bellows.InvalidError, "array a: .* can"):
                    ckpt.register("a", tensor)

    def test_mismatch(self):
        """another model or optimizer is told from the one that was saved"""
        model = nn.Linear(4, 2)
        with self.checkpoint() as ckpt:
            ckpt.track(model=model, optimizer=torch.optim.Adam(model.parameters()))
            ckpt.save(1, wait=True)
        cases = [
            (nn.Linear(4, 3), r"array model/weight: .* \[2, 4\].*\[3, 4\]"),
            (nn.Linear(4, 2, bias=False), "array model/bias: the checkpoint holds it"),
            (nn.Sequential(nn.Linear(4, 2)), "array model/0.weight: the program has it"),
            (nn.Linear(4, 2).double(), "array model/weight: .* type"),
        ]
        for other, words in cases:
            with self.checkpoint() as ckpt:
                ckpt.track(model=other)
                with self.assertRaisesRegex(bellows.MismatchError, words):
                    ckpt.restore()
        other = nn.Linear(4, 2)
        with self.checkpoint() as ckpt:
            ckpt.track(model=other, optimizer=torch.optim.Adam([other.weight]))
            with self.assertRaisesRegex(bellows.MismatchError, "bias is only in the checkpoint"):
                ckpt.restore()

    def test_model_alone(self):
        """a model can be restored without the optimizer, as for inference"""
        model = nn.Linear(4, 2)
        with self.checkpoint() as ckpt:
            ckpt.track(model=model, optimizer=torch.optim.Adam(model.parameters()))
            ckpt.save(1)
        other = nn.Linear(4, 2)
        with self.checkpoint() as ckpt:
            ckpt.track(model=other)
            self.assertEqual(ckpt.restore(), 1)
        self.assertTrue(torch.equal(model.weight, other.weight))

    def test_extra_state(self):
        """what a module adds with get_extra_state is restored, and buffers are"""

        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
                self.names = []

            def get_extra_state(self):
                return {"names": self.names}

            def set_extra_state(self, state):
                self.names = state["names"]

        first, second = nn.Sequential(Counting()), nn.Sequential(Counting())
        first[0].seen += 5
        first[0].names = ["a", "b"]
        with self.checkpoint() as ckpt:
            ckpt.track(model=first)
            ckpt.save(1)
        with self.checkpoint() as ckpt:
            ckpt.track(model=second)
            ckpt.restore()
        self.assertEqual(second[0].names, ["a", "b"])
        self.assertEqual(second[0].seen.tolist(), [5, 5])

    @unittest.skipUnless(not NO_TORCH and torch.cuda.is_available(), "there is no GPU")
    def test_cuda(self):
        """a model on a GPU is saved from there and restored there"""
        torch.manual_seed(1)
        x = torch.randn(64, 32, device="cuda")
        results = []
        for _ in range(2):
            model = nn.Linear(32, 32).cuda()
            optimizer = torch.optim.Adam(model.parameters())
            with self.checkpoint() as ckpt:
                ckpt.track(model=model, optimizer=optimizer, rng=True)
                step = ckpt.restore() or 0
                for i in range(step, 6):
                    if i == 3 and step == 0:
                        ckpt.save(3)
                    (model(x) - torch.randn(64, 32, device="cuda")).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            results.append(model.weight.detach().clone())
        self.assertTrue(torch.equal(*results))


if __name__ == "__main__":
    unittest.main()
