#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that takes steps with and without bellows.GradientNoise in turn: noise_steps.py STORE RANK WORLD PAIRS

Rank 0 prints a JSON object: "wall" and "cpu", ratios of the times of ten steps each on the clock and of the rank's
processor, and "plain", the seconds of a step without it.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bellows

STEPS = 10  # a whole turn of GradientNoise, with one measurement
BATCH = 256
WIDTH = 512


def model():
    layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10)))


def steps(parallel, optimizer, batch, labels):
    begin = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(parallel(batch), labels).backward()
        optimizer.step()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def main(store, rank, world, pairs):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    torch.manual_seed(1)
    trainings = []
    for measured in (False, True):
        parallel = model()
        if measured:
            bellows.GradientNoise(parallel, BATCH)
        trainings.append((parallel, torch.optim.SGD(parallel.parameters(), lr=0.001)))
    torch.manual_seed(rank)
    batch, labels = torch.randn(BATCH // world, WIDTH), torch.randint(10, (BATCH // world,))
    for training in trainings:
        steps(*training, batch, labels)
    took = {"wall": [], "cpu": []}
    plain = []
    for number in range(pairs):
        times = [None, None]
        for which in (0, 1) if number % 2 else (1, 0):
            dist.barrier()
            times[which] = steps(*trainings[which], batch, labels)
        for kind, without, measured in zip(took, *times):
            took[kind].append(measured / without)
        plain.append(times[0][0] / STEPS)
    if rank == 0:
        print(json.dumps({**took, "plain": statistics.median(plain)}))


if __name__ == "__main__":
    os.environ.setdefault("USE_LIBUV", "0")
    main(sys.argv[1], *map(int, sys.argv[2:]))
