# SPDX-License-Identifier: Apache-2.0
import math
import unittest

from support import TestCase, missing

NO_TORCH = missing("torch", "numpy")

# The gradient of a sample is the sample itself: its mean has the squared norm 4 and its variance is
# 2000 times 0.64, so the noise scale is 320. The parameters are in two buckets, since their types differ.
AROUND = """
import gc, os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
os.environ.update(MASTER_ADDR="127.0.0.1", USE_LIBUV="0")
store = dist.FileStore(os.path.join(dir, arguments[0]), world)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(1000))
        self.b = torch.nn.Parameter(torch.zeros(1000, dtype=torch.float64))
    def forward(self, x):
        return (x * torch.cat([self.a, self.b])).sum(dim=1).mean()

mean = torch.full((2000,), (4 / 2000) ** 0.5)
torch.manual_seed(10 * world + rank)
parallel = DistributedDataParallel(Model())

def step():
    parallel.zero_grad()
    parallel(mean + 0.8 * torch.randn(BATCH // world, 2000)).backward()
"""


# A thread of gloo's that drops its last work after Python has ended aborts the process, so the group ends first.
END = """
ckpt = noise = parallel = None
gc.collect()
dist.destroy_process_group()
"""


def program(batch, body):
    return AROUND.replace("BATCH", str(batch)) + body + END


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Noise(TestCase):
    def test_scale(self):
        """the noise scale is that of the samples, on one rank and on several, at any batch"""
        body = """
noise = bellows.GradientNoise(parallel, BATCH, every=2)
print(noise.scale, noise.throughput)
for _ in range(200): step()
print(noise.scale, noise.throughput)
"""
        for world, batch in ((1, 32), (2, 32), (4, 128)):
            said = self.ranks(world, program(batch, body.replace("BATCH", str(batch))), f"store{world}")
            first, last = (line.split() for line in said[0].splitlines())
            self.assertEqual(first, ["None", "None"])
            self.assertAlmostEqual(float(last[0]) / 320, 1, delta=0.15, msg=(world, batch))
            self.assertGreater(float(last[1]), 0)
            scales = {rank.splitlines()[1].split()[0] for rank in said}
            self.assertEqual(len(scales), 1, "the ranks agree to the last bit")

    def test_gradients(self):
        """the gradients are those without the hook, and another hook can be put below it"""
        body = """
def doubled(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future()

plain = DistributedDataParallel(Model())
twice = DistributedDataParallel(Model())
bellows.GradientNoise(parallel, 16, every=2)
bellows.GradientNoise(twice, 16, every=3, hook=doubled)
for number in range(8):
    x = mean + torch.randn(8, 2000)
    for model in (plain, parallel, twice):
        model.zero_grad()
        model(x).backward()
    for a, b, c in zip(plain.parameters(), parallel.parameters(), twice.parameters()):
        assert torch.equal(a.grad, b.grad) and torch.equal(2 * a.grad, c.grad), number
print("alike")
"""
        self.assertEqual(self.ranks(2, program(16, body), "store"), ["alike"] * 2)

    def test_overflow(self):
        """gradients that are not finite leave the averages as they were"""
        body = """
noise = bellows.GradientNoise(parallel, 16, every=2)
for _ in range(20): step()
before = noise.scale
for bad in (float("inf"), float("nan")):
    for _ in range(4):
        parallel.zero_grad()
        parallel(torch.full((8, 2000), bad)).backward()
    step()
print(before, noise.scale)
"""
        for line in self.ranks(2, program(16, body), "store"):
            before, after = line.split()
            self.assertTrue(math.isfinite(float(before)))
            self.assertAlmostEqual(float(after) / float(before), 1, delta=0.2)

    def test_saved(self):
        """the averages go on in a training with another batch"""
        body = """
noise = bellows.GradientNoise(parallel, BATCH)
ckpt.track(noise=noise)
first = ckpt.restore() or 0
if first: print(noise.scale)
for _ in range(31): step()
ckpt.save(first + 31)
ckpt.close()
print(noise.scale)
"""
        said = self.ranks(2, program(16, body.replace("BATCH", "16")), "one")
        again = self.ranks(1, program(64, body.replace("BATCH", "64")), "two")
        self.assertEqual(again[0].splitlines()[0], said[0])

    def test_refused(self):
        """a batch of nothing and an average that never moves are refused"""
        body = """
for wrong in ({"batch": 0}, {"batch": 8, "every": 1}, {"batch": 8, "smoothing": 1}):
    try:
        bellows.GradientNoise(parallel, **wrong)
    except ValueError:
        print("refused")
"""
        self.assertEqual(self.ranks(1, program(8, body), "store"), ["\n".join(["refused"] * 3)])


if __name__ == "__main__":
    unittest.main()
