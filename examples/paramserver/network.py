# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network that tells the section of a package by its description."""

import torch
from torch import nn

from sections import WORDS, words


class Samples:
    """The words of packages, and a number for each one's section."""

    def __init__(self, packages, sections):
        self.words = torch.tensor([words(package.description) for package in packages])
        self.sections = torch.tensor([sections.index(package.section) for package in packages])

    def __len__(self):
        return len(self.sections)

    def batches(self, size, order=None):
        """Words and sections of `size` samples at a time."""
        order = torch.arange(len(self)) if order is None else order
        for chosen in order.split(size):
            yield self.words[chosen], self.sections[chosen]


class Net(nn.Module):
    """With `sparse` the gradient of `words` has rows for the words that were read, and no others."""

    def __init__(self, sections, sparse=False):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32, padding_idx=0, sparse=sparse)
        self.phrases = nn.Conv1d(32, 64, 3, padding=1)
        self.sections = nn.Linear(64, sections)

    def forward(self, text):
        phrases = self.phrases(self.words(text).transpose(1, 2))
        return self.sections(phrases.relu().amax(2))


def right(net, samples):
    """How many of them."""
    with torch.no_grad():
        return sum(
            int((net(text).argmax(1) == sections).sum())
            for text, sections in samples.batches(1000)
        )


def train_once(net, optimizer, text, sections):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(text), sections).backward()
    optimizer.step()


def train(net, optimizer, batches):
    for text, sections in batches:
        train_once(net, optimizer, text, sections)
