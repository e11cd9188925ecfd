# SPDX-License-Identifier: Apache-2.0
import unittest

from bellows import ps
from ps_support import ENVIRONMENT, Server, ServerTestCase
from support import missing

NO_TORCH = missing("torch", "numpy")
if not NO_TORCH:
    import torch
    from torch import nn

#: A network with an embedding, of whose rows each step's words name some, also several times.
BEGIN = """
import torch
from torch import nn
from bellows import ps
from ps_support import in_processes

ROWS, WIDTH = 90, 7

def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(ROWS, WIDTH, sparse=True), nn.Flatten(), nn.Linear(4 * WIDTH, 3))

def loss_of(net, step, rank=0):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    words = torch.randint(ROWS // 9 * (1 + step % 9), (5, 4), generator=generator)
    return nn.functional.cross_entropy(net(words), torch.randint(3, (5,), generator=generator))

def train(net, optimizer, steps=50, rank=0):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, step, rank).backward()
        optimizer.step()

def is_close(net, other):
    pairs = zip(net.parameters(), other.parameters())
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)
"""


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Rows(ServerTestCase):
    def test_rules(self):
        """an embedding has the weights that torch's optimizers of sparse gradients give it"""
        cases = {
            "sgd": ("torch.optim.SGD", "lr=0.5"),
            "adagrad": ("torch.optim.Adagrad", "lr=0.1"),
            "adam": ("torch.optim.SparseAdam", "lr=0.05, eps=1e-3"),
        }
        text = BEGIN
        for rule, (theirs, terms) in cases.items():
            server = Server(self, rule, "--threads=2")
            self.addCleanup(server.close)
            text += f"""
def trained(net):
    # SparseAdam takes no others.
    return [net[0].weight] if "{rule}" == "adam" else list(net.parameters())

one, other = network(), network()
train(other, {theirs}(trained(other), {terms}))
with ps.Optimizer(trained(one), rule="{rule}", sparse=[one[0].weight], socket="{server.socket}", {terms}) as optimizer:
    train(one, optimizer)
    assert optimizer.updates == 50
print("{rule}", is_close(one, other), is_close(one, network()))
"""
        out, _ = self.program(text, **ENVIRONMENT)
        self.assertEqual(out.splitlines(), [f"{rule} True False" for rule in cases])

    def test_in_step(self):
        """two learners in step are one process with the mean of their sparse gradients"""
        self.serve("--mode=sync", "--learners=2", "--threads=2")
        out, _ = self.program(
            BEGIN
            + """
def learn(rank, barrier):
    net = network()
    with ps.Optimizer(net.parameters(), lr=0.5, sparse=net[0].weight) as optimizer:
        barrier.wait()
        train(net, optimizer, 30, rank)
        return [p.tolist() for p in net.parameters()]

other = network()
optimizer = torch.optim.SGD(other.parameters(), lr=0.5)
for step in range(30):
    optimizer.zero_grad()
    ((loss_of(other, step, 0) + loss_of(other, step, 1)) / 2).backward()
    optimizer.step()
for values in in_processes(2, learn):
    net = network()
    for p, value in zip(net.parameters(), values):
        p.data = torch.tensor(value)
    print(is_close(net, other))
""",
            **ENVIRONMENT,
        )
        self.assertEqual(out.splitlines(), ["True", "True"])

    def test_refusals(self):
        """what has no rows is refused with a sentence, and can be put right"""
        self.serve()
        embedding, other = nn.Embedding(9, 4, sparse=True), nn.Embedding(6, 4)
        params = [embedding.weight, other.weight]

        def refused(text, more=(), **terms):
            with self.assertRaisesRegex(ps.InvalidError, text):
                ps.Optimizer([*params, *more], **{"lr": 1.0, "sparse": params, **terms})

        refused("tensor 1 of `sparse` is none of the param", sparse=[embedding.weight, torch.ones(3)])
        number = nn.Parameter(torch.tensor(1.0))
        refused("tensor 0 of `sparse` is a single number", [number], sparse=[number])
        refused("tensor 0 .* a weight decay of 0.1", weight_decay=0.1)
        words = torch.tensor([3, 5, 3])
        with ps.Optimizer(params, lr=1.0, sparse=params) as optimizer:
            before = embedding.weight.clone()
            optimizer.zero_grad()
            (embedding(words) + other(words)).sum().backward()
            with self.assertRaisesRegex(ps.InvalidError, "parameter 1 .* gradient is dense"):
                optimizer.step()
            other.weight.grad = torch.ones(6, 4).to_sparse()
            with self.assertRaisesRegex(ps.InvalidError, "parameter 1 .* is sparse in 2 dimensions"):
                optimizer.step()
            # The rows that it has named for the first parameter are those of no gradient.
            optimizer.zero_grad()
            optimizer.step()
            self.assertTrue(torch.equal(embedding.weight, before))
            embedding(words).sum().backward()
            optimizer.step()
            moved = (before - embedding.weight).mean(1)
            self.assertTrue(torch.allclose(moved, torch.tensor([0.0, 0, 0, 2, 0, 1, 0, 0, 0])))
