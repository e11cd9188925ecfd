# SPDX-License-Identifier: Apache-2.0
"""examples/paramserver, and what becomes of its network when several processes train it."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from ps_support import BUILD, ENVIRONMENT, ServerTestCase
from support import PACKAGE, SECONDS, missing

TOP = os.path.dirname(PACKAGE)
EXAMPLE = os.path.join(TOP, "examples/paramserver")
NO_TORCH = missing("torch", "numpy")


def no_texts():
    """Why tests of real texts are skipped; "" when apt has them."""
    if not shutil.which("apt-cache"):
        return "there is no apt-cache"
    names = subprocess.run(["apt-cache", "pkgnames"], capture_output=True, timeout=SECONDS)
    return "" if len(names.stdout.split()) >= 30000 else "apt has no lists of packages"


NO_TEXTS = NO_TORCH or no_texts()


@unittest.skipIf(NO_TORCH, NO_TORCH)
class InStep(ServerTestCase):
    def test_bits(self):
        """three learners in step have the bits of one process that sums in their order, after 300 steps"""
        self.serve("--mode=sync", "--learners=3", "--threads=2")
        path = os.pathsep.join([EXAMPLE, ENVIRONMENT["PYTHONPATH"]])
        out, _ = self.program(
            """
import random
import torch
from bellows import ps
from network import Net, Samples, train
from ps_network import difference
from ps_support import in_processes
from sections import Package

STEPS, BATCH, LEARNERS = 300, 4, 3
made = random.Random(1)

def text():
    return " ".join(f"word{made.randrange(500)}" for _ in range(8))

sections = ["admin", "libs", "net", "text"]
packages = [Package(text(), made.choice(sections), "") for _ in range(STEPS * BATCH * LEARNERS)]
samples = Samples(packages, sections)

def network(seed):
    torch.manual_seed(seed)
    return Net(len(sections))

def batches(part):
    return samples.batches(BATCH, torch.arange(part, len(samples), LEARNERS))

def learn(rank, barrier):
    net = network(rank)
    with ps.Optimizer(net.parameters(), lr=0.1) as optimizer:
        number = optimizer.learner
        barrier.wait()
        train(net, optimizer, batches(number))
        return number, optimizer.updates, [p.tolist() for p in net.parameters()], rank

learned = sorted(in_processes(LEARNERS, learn))
print([number for number, *_ in learned], {updates for _, updates, *_ in learned})
nets = []
for _, _, values, _ in learned:
    nets.append(network(0))
    for p, value in zip(nets[-1].parameters(), values):
        p.data = torch.tensor(value)

# The first to join, which is number 0, says how the weights begin.
alone = network(learned[0][3])
optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
for step in zip(*map(batches, range(LEARNERS))):
    sums = None
    for words, numbers in step:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(alone(words), numbers).backward()
        new = [p.grad.clone() for p in alone.parameters()]
        sums = new if sums is None else [a + b for a, b in zip(sums, new)]
    for p, gradient in zip(alone.parameters(), sums):
        p.grad = gradient * (1 / LEARNERS)
    optimizer.step()
print(difference(alone, network(learned[0][3]))[0] > 0, *(difference(net, alone) for net in nets))
""",
            **{**ENVIRONMENT, "PYTHONPATH": path},
        )
        self.assertEqual(out.splitlines(), ["[0, 1, 2] {300}", "True (0, 0) (0, 0) (0, 0)"])


@unittest.skipIf(NO_TEXTS, NO_TEXTS)
class Texts(ServerTestCase):
    def test_sections(self):
        """examples/paramserver learns in two processes, and goes on in three"""
        said = self.learn(2, "--epochs", "1")[0]
        self.assertEqual(len(said), 2)
        # The most frequent section is a tenth.
        self.assertGreater(max(map(float, said)), 15)
        said, log = self.learn(3, "--epochs", "2")
        self.assertEqual(len(said), 3)
        self.assertGreater(max(map(float, said)), 20)
        # 3600 samples in batches of 8; learners may make some updates more.
        self.assertRegex(log, "goes on from the checkpoint of update 4[5-9][0-9]")

    def learn(self, learners, *options):
        """What each learner knows in the end, of 100; and what the server said."""
        server = ["bellows-ps", f"--learners={learners}", "--checkpoint-dir", self.path("saved")]
        program = [sys.executable, "train.py", "--samples", "4000", *options]
        done = self.example(*server, "--", *program)
        return re.findall(r"; ([0-9.]+) of 100 held-out packages", done.stdout), done.stderr

    def test_customers(self):
        """networks of customers are trained with small batches and large ones, and compared"""
        files = {"--json": self.path("json"), "--plot": self.path("plot")}
        options = [option for pair in files.items() for option in pair]
        batches = ["--customers", "1", "--epochs", "5", "--batches", "2", "64"]
        done = self.example(sys.executable, "customers.py", *batches, *options)
        self.assertEqual(len(done.stdout.splitlines()), 3, done.stdout)
        with open(files["--json"], encoding="utf-8") as file:
            said = json.load(file)
        small, large = said["results"]
        self.assertEqual((small["batch"], large["batch"]), (2, 64))
        self.assertGreaterEqual(small["updates"], 5 * small["samples"] // 2)
        # It has one update for 32.
        self.assertGreater(small["fitted"], large["fitted"])
        self.assertEqual([row["batch"] for row in said["batches"]], [2, 64])
        plot = xml.etree.ElementTree.parse(files["--plot"]).getroot()
        lines = plot.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual([len(line.get("points").split()) for line in lines], [2, 2, 2])

    def example(self, *command):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=EXAMPLE,
            env={
                **os.environ,
                "PATH": f"{BUILD}/paramserver:{os.environ['PATH']}",
                "XDG_RUNTIME_DIR": self.dir,
            },
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_convergence(self):
        """learners that don't wait for each other, with batches of 1, come as far as plain SGD"""
        self.serve("--learners=3")
        program = os.path.join(TOP, "tests/bench/text_convergence.py")
        done = subprocess.run(
            [sys.executable, program, "1", "2", "3000", "2"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(len(result["stale"]), 6000)
        print(
            f"# serial {result['serial']:.1f} %, asynchronous {result['async']:.1f} %, staleness at most "
            f"{statistics.mean(result['stale']):.2f} on average, {max(result['stale'])} once"
        )
        # After so few updates one run differs by some points from the next. BENCH=paramserver has
        # as many as half a point needs.
        self.assertGreater(result["serial"], 35)
        self.assertLess(abs(result["async"] - result["serial"]), 8)
