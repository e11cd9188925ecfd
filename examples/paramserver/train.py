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
from torch import nn

from sections import WORDS, packages, words


class Samples:
    """Lists of words, and a number for each one's section."""

    def __init__(self, all_of_them, sections):
        self.words = [torch.tensor(words(description)) for description, _ in all_of_them]
        self.sections = torch.tensor([sections.index(section) for _, section in all_of_them])

    def batches(self, size, order):
        """Words of `size` samples one after another, where each begins, and their sections."""
        for chosen in order.split(size):
            lists = [self.words[i] for i in chosen]
            begins = torch.tensor([0] + [len(each) for each in lists[:-1]]).cumsum(0)
            yield torch.cat(lists), begins, self.sections[chosen]


class Net(nn.Module):
    def __init__(self, sections):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 32)
        self.sections = nn.Linear(32, sections)

    def forward(self, text, begins):
        return self.sections(self.words(text, begins))


def right(net, samples):
    """How many of them."""
    with torch.no_grad():
        every = torch.arange(len(samples.sections))
        return sum(
            int((net(text, begins).argmax(1) == sections).sum())
            for text, begins, sections in samples.batches(1000, every)
        )


def optimizer_for(net, rate):
    if "BELLOWS_PS_SOCKET" in os.environ:
        # The server applies a gradient while the next is computed.
        return ps.Optimizer(net.parameters(), lr=rate, rule="adam", overlap=True)
    return torch.optim.Adam(net.parameters(), lr=rate)


def train(net, optimizer, samples, batch, epochs):
    """The samples in a second."""
    begin = time.monotonic()
    for _ in range(epochs):
        order = torch.randperm(len(samples.sections))
        for text, begins, sections in samples.batches(batch, order):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(text, begins), sections).backward()
            optimizer.step()
    return epochs * len(samples.sections) / (time.monotonic() - begin)


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
    sections = sorted({section for _, section in every})
    # The same tenth in every learner, which none trains with.
    held_out = every[::10]
    mine = [each for i, each in enumerate(every) if i % 10 and i // 10 % parts == part]
    net = Net(len(sections))
    optimizer = optimizer_for(net, options.rate)
    speed = train(net, optimizer, Samples(mine, sections), options.batch, options.epochs)
    count = right(net, Samples(held_out, sections))
    print(
        f"learner {part}: {speed:.0f} samples a second; "
        f"{100 * count / len(held_out):.1f} of 100 held-out packages are right"
    )
    if isinstance(optimizer, ps.Optimizer):
        optimizer.close()


if __name__ == "__main__":
    main()
