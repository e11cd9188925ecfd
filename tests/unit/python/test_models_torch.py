# SPDX-License-Identifier: Apache-2.0
import unittest
import warnings

from bellows import models
from model_support import StoreTestCase, mapped_models
from support import missing
from test_models import TENSORS

NO_TORCH = missing("torch", "numpy")
if not NO_TORCH:
    import torch
    from bellows.models.modules import load_into
    from torch import nn


def of_state(state):
    """Tensors of a state dict as a file has them."""
    names = {torch.float32: "F32", torch.int64: "I64", torch.bfloat16: "BF16"}
    return [
        (name, names[t.dtype], tuple(t.shape), t.reshape(-1).view(torch.uint8).numpy())
        for name, t in state.items()
    ]


class Net(nn.Module if not NO_TORCH else object):
    """With batch norm and a tied weight."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.norm(self.embedding(x)))


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Torch(StoreTestCase):
    def test_tensors(self):
        """tensors are the model's memory, bfloat16 too, without a warning"""
        self.add("m", TENSORS)
        self.start_store()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with models.open("m") as model:
                self.assertEqual(model["h"].tolist(), [1.0, 2.0])
                self.assertEqual(model["w"].tolist(), [[0, 1, 2], [3, 4, 5]])
                self.assertEqual(model["one"].shape, ())
                self.assertEqual(model["none"].shape, (0, 3))
                self.assertEqual(model["b"].data_ptr(), model.info("b").address)
                if hasattr(torch, "float8_e5m2"):
                    self.assertEqual(model["q"].float().tolist(), [1.0] * 4)
                else:
                    with self.assertRaisesRegex(models.InvalidError, "tensor q .* F8_E5M2"):
                        model["q"]
                tensor = model["w"][1]
        del model
        self.assertEqual(mapped_models(), 1)
        self.assertEqual(tensor.tolist(), [3, 4, 5])
        del tensor
        self.assertEqual(mapped_models(), 0)

    def test_load_into(self):
        """a module gets the model's memory, and buffers of its own"""
        trained = Net()
        trained(torch.arange(10))
        state = {name: t for name, t in trained.state_dict().items() if name != "head.weight"}
        self.add("m", of_state(state))
        self.start_store()
        net = Net()
        model = models.open("m")
        model.load_into(net)
        weight = net.embedding.weight
        self.assertEqual(weight.data_ptr(), model.info("embedding.weight").address)
        self.assertIs(net.head.weight, weight)
        self.assertFalse(weight.requires_grad)
        x = torch.arange(10)
        self.assertTrue(torch.equal(net.eval()(x), trained.eval()(x)))
        net.train()(x)
        self.assertEqual(net.norm.num_batches_tracked, 2)
        self.assertEqual(model["norm.num_batches_tracked"], 1)

    def test_trains(self):
        """a module with a writable model trains, and nobody else sees it"""
        state = Net().state_dict()
        del state["head.weight"]
        self.add("m", of_state(state))
        self.start_store()
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        models.open("m", writable=True).load_into(net)
        before = net.embedding.weight.detach().clone()
        net(torch.arange(10)).sum().backward()
        optimizer.step()
        self.assertFalse(torch.equal(net.embedding.weight, before))
        self.assertTrue(torch.equal(models.open("m")["embedding.weight"], before))

    def test_meta(self):
        """a module without memory gets it all from the model"""
        state = Net().state_dict()
        del state["head.weight"]
        self.add("m", of_state(state))
        self.start_store()
        net = Net().to(device="meta")
        net.head.weight = net.embedding.weight
        models.open("m").load_into(net)
        self.assertIs(net.head.weight, net.embedding.weight)
        for name, tensor in state.items():
            self.assertTrue(torch.equal(net.state_dict()[name], tensor), name)

    def test_buffers_of_a_gpu(self):
        """buffers are where the model is, those too that it does not have"""

        class Elsewhere(dict):
            """A model that is not in this machine's memory. No GPU is needed to tell."""

            name, writable = "m", False

            def info(self, name):
                return self[name]

            def tensor(self, name):
                return self[name].to("meta")

        for start in "cpu", "meta":
            net = nn.BatchNorm1d(8, affine=False)
            model = Elsewhere(net.state_dict())
            net.to(start)
            net.register_buffer("cache", torch.zeros(3), persistent=False)
            load_into(model, net, strict=True)
            self.assertEqual({b.device.type for b in net.buffers()}, {"meta"}, start)

    def test_mismatch(self):
        """what is missing or has another shape is named, and nothing is changed"""
        state = Net().state_dict()
        del state["head.weight"], state["norm.bias"]
        state["embedding.weight"] = torch.zeros(10, 4)
        state["more"] = torch.zeros(1)
        self.add("m", of_state(state))
        self.start_store()
        net = Net()
        before = net.norm.weight.data_ptr()
        with self.assertRaises(models.MismatchError) as said:
            models.open("m").load_into(net)
        text = str(said.exception)
        self.assertIn("it has no norm.bias", text)
        self.assertIn("embedding.weight is [10, 4], not [10, 8]", text)
        self.assertIn("the module has no more", text)
        self.assertEqual(net.norm.weight.data_ptr(), before)
        with self.assertRaises(models.MismatchError) as said:
            models.open("m").load_into(net, strict=False)
        self.assertNotIn("more", str(said.exception))
