# SPDX-License-Identifier: Apache-2.0
"""Classifies new points with the network of train.py: classify.py spirals.pt

A plain PyTorch program, in which nothing knows about Bellows.
"""

import sys

import torch
from torch.nn.functional import linear
from train import spirals


def load(path):
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path)


if __name__ == "__main__":
    state = load(sys.argv[1])
    torch.manual_seed(2)
    x, y = spirals(2000)
    for layer in (0, 2):
        x = linear(x, state[f"{layer}.weight"], state[f"{layer}.bias"]).tanh()
    x = linear(x, state["4.weight"], state["4.bias"])
    right = (x.argmax(1) == y).sum().item()
    print(f"{right} of {len(y)} points are on the right spiral")
