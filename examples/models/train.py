# SPDX-License-Identifier: Apache-2.0
"""Trains a small network to tell two spirals apart, and saves it: train.py spirals.pt"""

import math
import sys

import torch
from torch import nn


def spirals(count):
    """Points of two spirals, and to which of them each belongs."""
    turn = torch.rand(count).sqrt() * 3 * math.pi
    which = torch.arange(count) % 2
    angle = turn + which * math.pi
    return torch.stack([turn * angle.cos(), turn * angle.sin()], 1) / 10, which


if __name__ == "__main__":
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(300):
        x, y = spirals(200)
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(net.state_dict(), sys.argv[1])
