# SPDX-License-Identifier: Apache-2.0
import math
import os
import unittest
from collections import defaultdict
from unittest import mock

import bellows
from bellows import rates
from support import TestCase, missing

NO_TORCH = missing("torch")


class Batch(TestCase):
    def test_ordered(self):
        """the batch is the program's own until another one is ordered"""
        with self.checkpoint() as ckpt:
            self.assertEqual(ckpt.batch(64), 64)
            with mock.patch.dict(os.environ, BELLOWS_BATCH="256", BELLOWS_BATCH_RANGE="64-512"):
                self.assertEqual(ckpt.batch(64), 256)
            for own in (0, -1, 2**64):
                with self.assertRaises(bellows.InvalidError):
                    ckpt.batch(own)
            with self.assertRaises(TypeError):
                ckpt.batch(1.5)
            with mock.patch.dict(os.environ, BELLOWS_BATCH_RANGE="64-512"):
                with self.assertRaisesRegex(bellows.InvalidError, "in the job's range, 64-512"):
                    ckpt.batch(32)

    def test_samples(self):
        """every sample is used once an epoch when batch and world change in the middle of epochs"""
        program = """
        batch = ckpt.batch(8)
        sampler = bellows.Sampler(101, batch, 3, rank, world)
        ckpt.track(sampler=sampler)
        step = ckpt.restore() or 0
        for _ in range(3):
            for samples in sampler:
                print(sampler.position(step).epoch, *samples)
                step += 1
                if ckpt.should_stop(step) or step == int(arguments[0]):
                    ckpt.save(step)
                    ckpt.close(finished=False)
                    raise SystemExit
        ckpt.close()
        """
        used = defaultdict(list)
        for last, world, batch in ((5, 2, 8), (10, 3, 32), (12, 1, 7), (30, 4, 20)):
            with mock.patch.dict(os.environ, BELLOWS_BATCH=str(batch), BELLOWS_BATCH_RANGE="7-32"):
                said = self.ranks(world, program, str(last))
            for line in "\n".join(said).splitlines():
                epoch, *samples = map(int, line.split())
                used[epoch] += samples
        for epoch in range(max(used)):
            self.assertEqual(sorted(used[epoch]), list(range(101)))
        self.assertGreaterEqual(max(used), 3)
        self.assertEqual(len(set(used[max(used)])), len(used[max(used)]))


class Rates(unittest.TestCase):
    def test_rules(self):
        """the rules agree with their papers"""
        self.assertEqual(rates.linear(256, 64), 4)
        self.assertEqual(rates.square_root(256, 64), 2)
        variance, square, start, batch = 3.0, 0.5, 64, 512
        scale = batch / start
        gain = (variance + square) / (variance / scale + square)
        self.assertAlmostEqual(rates.adascale(batch, start, variance * start / square), gain)
        self.assertAlmostEqual(rates.efficiency(batch, start, variance * start / square), gain / scale)

    def test_limits(self):
        """AdaScale goes from no gain without noise to the linear rule, and is 1 for the own batch"""
        self.assertEqual(rates.adascale(256, 64, 0), 1)
        self.assertEqual(rates.adascale(256, 64, math.inf), 4)
        self.assertAlmostEqual(rates.adascale(256, 64, 1e12), 4)
        self.assertEqual(rates.adascale(64, 64, 100), 1)
        self.assertLess(rates.adascale(32, 64, 100), 1)

    def test_refused(self):
        """batches below 1 and a noise that is no number are refused"""
        for wrong in (lambda: rates.linear(0, 64), lambda: rates.square_root(64, 0),
                      lambda: rates.adascale(64, 64, math.nan), lambda: rates.adascale(1, 1, -1)):
            with self.assertRaises(ValueError):
                wrong()

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_scaled(self):
        """learning rates are scaled for the step alone, whatever happens in it"""
        import torch

        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for wanted in (-2.0, -3.0):
            weight.grad = torch.ones(1)
            with rates.scaled(optimizer, 4):
                optimizer.step()
            scheduler.step()
            self.assertEqual(weight.item(), wanted)
        with self.assertRaises(KeyError):
            with rates.scaled(optimizer, 4):
                raise KeyError
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.125)


if __name__ == "__main__":
    unittest.main()
