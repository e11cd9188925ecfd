# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
import unittest

from support import SECONDS, TestCase, missing

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
NO_TORCH = missing("torch", "numpy")

# What the README's loop has around it. After 40 steps of the first run its agent is told to stop, and
# each step takes long enough for that to come through before the last one.
AROUND = """
import os, signal, subprocess, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(1)
data = TensorDataset(torch.randn(640, 16), torch.arange(640) % 4)
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4))
optimizer = torch.optim.Adam(model.parameters())
epochs, steps = 30, 0

def criterion(out, y):
    global steps
    steps += 1
    if sys.argv[1] == "stop" and steps >= 40:
        if steps == 40:
            pid = subprocess.check_output(["pgrep", "-f", f"agent .*--dir {os.getcwd()}/"])
            os.kill(int(pid), signal.SIGUSR1)
        time.sleep(0.01)
    return torch.nn.functional.cross_entropy(out, y)

LOOP
print(step, steps, model[0].weight.sum().item().hex(), model[2].weight.sum().item().hex())
"""


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as file:
        return file.read()


def readme_loop():
    return re.search(r"```python\n(import bellows .*?)```", read("python", "README.md"), re.S)[1]


def readme_loop_with_batches():
    """The loop with the lines that the README changes for a range of batches."""
    lines = re.search(r"```python\n(sampler = .*?)```", read("python", "README.md"), re.S)[1]
    sampler, step = lines.split("\n", 1)
    loop = re.sub(r"^sampler = .*$", sampler, readme_loop(), flags=re.M)
    return re.sub(r"^ +optimizer\.step\(\)\n", step, loop, flags=re.M)


class Loop(TestCase):
    def test_lines(self):
        """the README adds ten lines to a plain loop, the example too, and no other line needs Bellows"""
        marks = [re.search(r"  # (\d+|changed)$", line) for line in readme_loop().splitlines()]
        numbers = [mark[1] for mark in marks if mark and mark[1] != "changed"]
        self.assertEqual(numbers, [str(number) for number in range(1, 11)])
        for line, mark in zip(readme_loop().splitlines(), marks):
            if not mark:
                self.assertNotRegex(line, r"bellows|ckpt|sampler|stop|step\b(?!\()")
        body = read("examples", "pytorch", "train.py").split('"""', 2)[2]
        self.assertLessEqual(len(re.findall("  # Bellows$", body, re.M)), 10)
        for line in body.splitlines():
            if not re.search("# (Bellows|changed)$", line):
                self.assertNotRegex(line, r"bellows\.|ckpt\.(?!rank == 0)(?!world} acc)|sampler\.")

    def run_loop(self, place, how, loop=None, **environment):
        """What one run of the README's loop prints."""
        directory = os.path.join(self.dir, place)
        os.makedirs(directory, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", AROUND.replace("LOOP", loop or readme_loop()), how],
            cwd=directory, capture_output=True, text=True, timeout=SECONDS,
            env={**os.environ, **environment},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_runs(self):
        """the README's loop stops, goes on, and ends with the weights of one that was left alone"""
        self.assertEqual(self.run_loop("stopped", "stop"), [])
        step, made, *weights = self.run_loop("stopped", "go on")
        self.assertEqual(step, "300")
        self.assertTrue(0 < int(made) < 261, made)
        self.assertEqual(weights, self.run_loop("alone", "go on")[2:])
        # It was finished: nothing is left to do, and the last step is restored.
        self.assertEqual(self.run_loop("stopped", "go on"), ["300", "0", *weights])

    def test_batch_lines(self):
        """a range of batches takes at most ten lines more"""
        more = len(readme_loop_with_batches().splitlines()) - len(readme_loop().splitlines())
        self.assertTrue(0 < more <= 10, more)

    @unittest.skipIf(NO_TORCH, NO_TORCH)
    def test_batches(self):
        """the loop with a range of batches follows an order"""
        loop = readme_loop_with_batches()
        self.assertEqual(self.run_loop("ordered", "stop", loop), [])
        step, made, *_ = self.run_loop("ordered", "go on", loop, BELLOWS_BATCH="128",
                                       BELLOWS_BATCH_RANGE="64-128")
        # 30 epochs of 640 samples are 300 steps of 64 or 150 of 128; the first 40 or more were of 64.
        before = int(step) - int(made)
        self.assertGreaterEqual(before, 40)
        left = 30 * 640 - 64 * before
        self.assertIn(int(made), (left // 128, left // 128 + 1))


if __name__ == "__main__":
    unittest.main()
