# SPDX-License-Identifier: Apache-2.0
import random
import unittest
from collections import defaultdict

from bellows import MismatchError, Position, Sampler
from support import TestCase, missing

NO_TORCH = missing("torch")


def train(samplers, step, steps, used):
    """Trains so many steps on all ranks; `used` gets the samples by epoch."""
    while steps:
        epoch = samplers[0].epoch
        for parts in zip(*samplers):
            if len(parts[0]) + len(parts[-1]) == 0:
                raise AssertionError("an empty batch")
            if sum(len(part) for part in parts) != samplers[0].size_at(step):
                raise AssertionError(f"step {step} has not the size it says")
            if max(map(len, parts)) > min(map(len, parts)) + 1:
                raise AssertionError(f"step {step} is not shared equally: {parts}")
            for part in parts:
                used[epoch] += part
            step, steps = step + 1, steps - 1
            for sampler in samplers:
                sampler.told(step)
            if not steps:
                break
    return step


class Order(TestCase):
    def test_resizes(self):
        """every sample of every epoch is used once across resizes, at any world and batch"""
        rng = random.Random(5)
        for case in range(300):
            size, used, step, position = rng.randint(1, 300), defaultdict(list), 0, Position(0, 0)
            plan = []
            for _ in range(rng.randint(1, 6)):
                batch = rng.randint(1, 60)
                world = rng.randint(1, min(batch, 8))
                plan.append((batch, world))
                samplers = [Sampler(size, batch, case, rank, world) for rank in range(world)]
                for sampler in samplers:
                    sampler.start(step, position)
                step = train(samplers, step, rng.randint(0, 30), used)
                self.assertEqual(len({sampler.position(step) for sampler in samplers}), 1)
                position = samplers[0].position(step)
            for epoch, samples in used.items():
                wanted = size if epoch < position.epoch else position.offset
                self.assertEqual(len(samples), wanted, (size, plan))
                self.assertEqual(len(set(samples)), wanted, (size, plan))
                self.assertTrue(set(samples) <= set(range(size)))

    def test_same_steps_at_any_world(self):
        """the samples of a step do not depend on the number of ranks, and epochs differ"""
        epochs = []
        for world in (1, 3, 8):
            samplers = [Sampler(100, 8, 1, rank, world) for rank in range(world)]
            epochs.append([[sum(parts, []) for parts in zip(*samplers)] for _ in range(2)])
        self.assertEqual(epochs[0], epochs[1])
        self.assertEqual(epochs[0], epochs[2])
        self.assertNotEqual(*epochs[0])
        self.assertNotEqual(epochs[0][0], list(Sampler(100, 8, 2, 0, 1)))

    def test_last_batch(self):
        """the last batch of an epoch is short, or with drop_last is not there"""
        self.assertEqual([len(b) for b in Sampler(10, 4, 1, 0, 1)], [4, 4, 2])
        self.assertEqual([len(b) for b in Sampler(10, 4, 1, 0, 1, drop_last=True)], [4, 4])
        self.assertEqual([len(b) for b in Sampler(10, 4, 1, 0, 4)], [1, 1, 0])
        dropping = Sampler(10, 4, 1, 0, 1, drop_last=True)
        self.assertEqual(dropping.position(2), Position(1, 0))
        self.assertEqual(dropping.position(5), Position(2, 4))
        self.assertEqual(len(dropping), 2)

    def test_left_early(self):
        """a look at the first batch does no harm; an epoch left in the middle is an error"""
        sampler = Sampler(10, 4, 1, 0, 1)
        first = next(iter(sampler))
        self.assertEqual(next(iter(sampler)), first)
        self.assertEqual(sum(len(batch) for batch in sampler), 10)
        self.assertEqual(sampler.epoch, 1)
        for step, _ in enumerate(sampler, 3):
            sampler.told(step + 1)
            break
        with self.assertRaisesRegex(RuntimeError, "epoch 1 was left before its end"):
            iter(sampler)

    def test_refused(self):
        """arguments that make no sense are refused"""
        for arguments in ((0, 1, 1, 0, 1), (1, 0, 1, 0, 1), (9, 3, 1, 2, 2), (9, 3, 1, -1, 2),
                          (9, 3, 1, 0, 4), (9, 3, -1, 0, 1), (2, 3, 1, 0, 1, True)):
            with self.assertRaises(ValueError, msg=arguments):
                Sampler(*arguments)
        sampler = Sampler(9, 3, 1, 0, 1)
        sampler.start(5, Position(0, 3))
        with self.assertRaisesRegex(ValueError, "before step 5"):
            sampler.position(4)


class Saved(TestCase):
    def test_saved(self):
        """the position is saved and restored with another batch, and other data is refused"""
        used, sampler = defaultdict(list), Sampler(100, 8, 3, 0, 1)
        with self.checkpoint() as ckpt:
            ckpt.track(sampler=sampler)
            ckpt.save(train([sampler], 0, 20, used))  # into the second epoch
        for world, batch in ((1, 5), (1, 64)):
            with self.checkpoint() as ckpt:
                sampler = Sampler(100, batch, 3, 0, world)
                ckpt.track(sampler=sampler)
                step = ckpt.restore()
                self.assertEqual(sampler.epoch, len(used) - 1)
                ckpt.save(train([sampler], step, 7, used))
        for epoch in range(len(used) - 1):
            self.assertEqual(sorted(used[epoch]), list(range(100)))
        for size, seed in ((101, 3), (100, 4)):
            with self.checkpoint() as ckpt:
                ckpt.track(sampler=Sampler(size, 8, seed, 0, 1))
                with self.assertRaisesRegex(MismatchError, "order of samples was made with"):
                    ckpt.restore()

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_prefetch(self):
        """what a DataLoader's workers have fetched ahead does not count as used"""
        import torch

        torch.set_num_threads(1)
        data = torch.utils.data.TensorDataset(torch.arange(100))
        used, step = defaultdict(list), 0
        for last in (7, 20, 33):
            sampler = Sampler(100, 8, 3, 0, 1)
            loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=2)
            with self.checkpoint() as ckpt:
                ckpt.track(sampler=sampler)
                self.assertEqual(ckpt.restore() or 0, step)
                while step < last:
                    epoch = sampler.epoch
                    for (samples,) in loader:
                        used[epoch] += samples.tolist()
                        step += 1
                        ckpt.should_stop(step)
                        if step == last:
                            break
                ckpt.save(step)
        self.assertEqual(sorted(used[0]), list(range(100)))
        self.assertEqual(sorted(used[1]), list(range(100)))
        self.assertEqual(len(set(used[2])), len(used[2]))


if __name__ == "__main__":
    unittest.main()
