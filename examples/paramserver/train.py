# SPDX-License-Identifier: Apache-2.0
"""Learns to tell the section of a package by its description, together with other processes.

One learner of four is `train.py --part 0/4`, with the socket of a bellows-ps in BELLOWS_PS_SOCKET.
Without that it trains alone, with torch's own optimizer.
"""

import argparse
import os
import time

import torch
from bellows import ps

from network import Net, Samples, right, train
from sections import packages


def optimizer_for(net, rate):
    if "BELLOWS_PS_SOCKET" in os.environ:
        # The server applies a gradient while the next is computed.
        return ps.Optimizer(net.parameters(), lr=rate, rule="adam", overlap=True)
    return torch.optim.Adam(net.parameters(), lr=rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="0/1", help="which learner this is, and of how many")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--samples", type=int, help="so many packages; all by default")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    torch.set_num_threads(1)
    torch.manual_seed(part)
    every = packages()
    every = every[:: max(1, len(every) // (options.samples or len(every)))]
    sections = sorted({package.section for package in every})
    # The same tenth in every learner, which none trains with.
    held_out = every[::10]
    mine = [each for i, each in enumerate(every) if i % 10 and i // 10 % parts == part]
    mine, held_out = Samples(mine, sections), Samples(held_out, sections)
    net = Net(len(sections))
    optimizer = optimizer_for(net, options.rate)
    begin = time.monotonic()
    for _ in range(options.epochs):
        train(net, optimizer, mine.batches(options.batch, torch.randperm(len(mine))))
    speed = options.epochs * len(mine) / (time.monotonic() - begin)
    count = right(net, held_out)
    print(
        f"learner {part}: {speed:.0f} samples a second; "
        f"{100 * count / len(held_out):.1f} of 100 held-out packages are right"
    )
    if isinstance(optimizer, ps.Optimizer):
        optimizer.close()


if __name__ == "__main__":
    main()
