# SPDX-License-Identifier: Apache-2.0
"""Networks of well-known shapes for the benchmarks of models; their weights are made up.

`thin` divides the widths of all layers, to try a benchmark with less; `device` "meta" makes a network
without memory, for weights that come from elsewhere.
"""
import torch
from torch import nn

WIDTH = 4096  # of the large network
LAYER_BYTES = 4 * WIDTH * WIDTH
VGG = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0)


def _classifier(features, inputs, thin, device):
    hidden = 4096 // thin
    return nn.Sequential(
        *features, nn.Flatten(), nn.Linear(inputs, hidden, device=device), nn.ReLU(),
        nn.Linear(hidden, hidden, device=device), nn.ReLU(), nn.Linear(hidden, 1000, device=device))


def alexnet(thin, device):
    layers, before = [], 3
    for width, kernel, stride, padding, pool in ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False),
                                                 (256, 3, 1, 1, False), (256, 3, 1, 1, True)):
        layers += [nn.Conv2d(before, width // thin, kernel, stride, padding, device=device), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] if pool else []
        before = width // thin
    return _classifier(layers, before * 6 * 6, thin, device)


def vgg19(thin, device):
    layers, before = [], 3
    for width in VGG:
        if width == 0:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(before, width // thin, 3, padding=1, device=device), nn.ReLU()]
        before = width // thin
    return _classifier(layers, before * 7 * 7, thin, device)


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride, device):
        super().__init__()
        convolutions = ((before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.steps = nn.ModuleList(_normalized(*each, device) for each in convolutions)
        changes = stride > 1 or before != 4 * width
        self.short = _normalized(before, 4 * width, 1, stride, device) if changes else nn.Identity()

    def forward(self, x):
        y = self.steps[1](self.steps[0](x).relu()).relu()
        return (self.steps[2](y) + self.short(x)).relu()


def _normalized(before, after, kernel, stride, device):
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False, device=device)
    return nn.Sequential(convolution, nn.BatchNorm2d(after, device=device))


def resnet50(thin, device):
    before = 64 // thin
    layers = [_normalized(3, before, 7, 2, device), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width = (64 << stage) // thin
            layers.append(Bottleneck(before, width, 2 if stage > 0 and block == 0 else 1, device))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000, device=device))


IMAGE = {"alexnet": alexnet, "vgg19": vgg19, "resnet50": resnet50}


def network(name, size, device):
    """`size`: how thin a network for images is; how many bytes the large one takes."""
    if name in IMAGE:
        return IMAGE[name](size, device).eval()
    layers = [layer for _ in range(size // LAYER_BYTES)
              for layer in (nn.Linear(WIDTH, WIDTH, device=device), nn.ReLU())]
    return nn.Sequential(*layers).eval()


def question(name):
    return torch.ones(1, 3, 224, 224) if name in IMAGE else torch.ones(1, WIDTH)


def made_up(module):
    """A state dict for a network without memory. Large tensors of one shape have the same values."""
    known = {}
    state = {}
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point() or tensor.dim() < 2:
            # Means, variances and counts of norms: one is sound for all of them.
            state[name] = torch.ones(tensor.shape, dtype=tensor.dtype)
            continue
        if tensor.shape not in known:
            known[tensor.shape] = torch.randn(tensor.shape) * (tensor[0].numel() ** -0.5)
        state[name] = known[tensor.shape].clone()
    return state
