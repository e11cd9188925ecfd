# SPDX-License-Identifier: Apache-2.0
"""Learns to tell the section of a package by its description, together with other processes.

`bellows-ps --learners=4 -- python3 train.py` starts four of it, and `bellows run --kind=ps --
python3 train.py` one for each GPU of a job. By itself it trains alone, with torch's own optimizer.
"""

import argparse
import os
import time

import torch
from bellows import ps

from network import Net, Samples, right, train_once
from sections import packages


def optimizer_for(net, rate):
    if "BELLOWS_PS_SOCKET" in os.environ:
        # The server applies a gradient while the next is computed.
        return ps.Optimizer(net.parameters(), lr=rate, rule="adam", overlap=True)
    return torch.optim.Adam(net.parameters(), lr=rate)


def fit(net, optimizer, samples, batch, updates):
    """Trains until there have been so many updates, of all learners: also of those before a job was
    resized or a learner was killed. How many this one has made."""
    steps = 0

    def done():
        return optimizer.updates if isinstance(optimizer, ps.Optimizer) else steps

    # Who comes later draws other samples.
    torch.manual_seed(os.getpid())
    while True:
        for text, sections in samples.batches(batch, torch.randperm(len(samples))):
            if done() >= updates:
                return steps
            train_once(net, optimizer, text, sections)
            steps += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--samples", type=int, help="so many packages; all by default")
    options = parser.parse_args()
    part = int(os.environ.get("BELLOWS_PS_LEARNER", "0"))
    parts = int(os.environ.get("BELLOWS_PS_LEARNERS", "1"))
    torch.set_num_threads(1)
    every = packages()
    every = every[:: max(1, len(every) // (options.samples or len(every)))]
    sections = sorted({package.section for package in every})
    # The same tenth in every learner, which none trains with.
    held_out = every[::10]
    mine = [each for i, each in enumerate(every) if i % 10 and i // 10 % parts == part]
    mine, held_out = Samples(mine, sections), Samples(held_out, sections)
    net = Net(len(sections))
    optimizer = optimizer_for(net, options.rate)
    updates = options.epochs * (len(every) - len(held_out)) // options.batch
    begin = time.monotonic()
    steps = fit(net, optimizer, mine, options.batch, updates)
    speed = steps * options.batch / (time.monotonic() - begin)
    count = right(net, held_out)
    print(
        f"learner {part}: {speed:.0f} samples a second; "
        f"{100 * count / len(held_out):.1f} of 100 held-out packages are right"
    )
    if isinstance(optimizer, ps.Optimizer):
        optimizer.close()


if __name__ == "__main__":
    main()
