# SPDX-License-Identifier: Apache-2.0
"""A small network and its samples, the same in every process that learns in the tests."""

import torch
from torch import nn


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 17), nn.Tanh(), nn.Linear(17, 3))


def loss_of(net, step, rank=0):
    """Of a batch of 5 samples."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(5, 20, generator=generator)
    y = torch.randint(3, (5,), generator=generator)
    return nn.functional.cross_entropy(net(x), y)


def train(net, optimizer, steps, rank=0):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(net, step, rank).backward()
        optimizer.step()


def difference(net, other):
    """How many weights differ, and the largest distance in units of the last place."""
    count, most = 0, 0
    for a, b in zip(net.parameters(), other.parameters()):
        # As whole numbers, floats of one sign are in order.
        steps = (a.detach().view(torch.int32).long() - b.detach().view(torch.int32).long()).abs()
        count += int((steps > 0).sum())
        most = max(most, int(steps.max()))
    return count, most
