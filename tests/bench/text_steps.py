#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of several processes that train examples/paramserver in three ways in turn: text_steps.py STORE RANK WORLD BATCH
TURNS SEED, with the socket of a new bellows-ps in BELLOWS_PS_SOCKET.

The ways are bellows.ps, DistributedDataParallel over gloo, and each process by itself. Rank 0 prints a JSON object:
"ps", "ddp" and "alone", samples a second of all processes in each turn, and "accuracy", the percentages of held-out
samples that the networks of "ps" and "ddp" know after as many samples.
"""
import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/paramserver"))
from bellows import ps  # pylint: disable=wrong-import-position
from network import Net, Samples, right, train  # pylint: disable=wrong-import-position
from sections import packages  # pylint: disable=wrong-import-position

STEPS = 200  # in a turn
RATE = 0.03


def texts():
    """Samples to train with, held-out ones, and the number of sections."""
    every = packages()
    sections = sorted({package.section for package in every})
    rest = [package for i, package in enumerate(every) if i % 4]
    return Samples(rest, sections), Samples(every[::4], sections), len(sections)


def endless(samples, batch, rank, world, seed):
    """Batches of one process, all of them whole. Each way has its own, of the same samples."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(samples), generator=generator)[rank::world]
        yield from samples.batches(batch, order[: len(order) // batch * batch])


def ways(sections, world, seed):
    """Networks and their optimizers."""
    torch.manual_seed(seed)
    # Sparse gradients cost gloo more than all of the gradient does.
    nets = {way: Net(sections, sparse=way != "ddp") for way in ("ps", "ddp", "alone")}
    for net in nets.values():
        net.load_state_dict(nets["ps"].state_dict())
    nets["ddp"] = DistributedDataParallel(nets["ddp"])
    # It takes the mean of the processes' gradients: so that one sample counts for as much.
    rates = {"ddp": RATE * world, "alone": RATE}
    optimizers = {way: torch.optim.SGD(nets[way].parameters(), lr=rate) for way, rate in rates.items()}
    optimizers["ps"] = ps.Optimizer(nets["ps"].parameters(), lr=RATE, sparse=[nets["ps"].words.weight], overlap=True)
    return {way: (net, optimizers[way]) for way, net in nets.items()}


def turn(net, optimizer, batches):
    """The seconds until all processes have done their steps."""
    dist.barrier()
    begin = time.perf_counter()
    train(net, optimizer, itertools.islice(batches, STEPS))
    if isinstance(optimizer, ps.Optimizer):
        optimizer.drain()
    dist.barrier()
    return time.perf_counter() - begin


def main(store, rank, world, batch, turns, seed):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    samples, held_out, sections = texts()
    trainings = ways(sections, world, seed)
    batches = {way: endless(samples, batch, rank, world, seed) for way in trainings}
    rates = {way: [] for way in trainings}
    for number in range(turns + 1):
        for way in sorted(trainings, reverse=bool(number % 2)):
            seconds = turn(*trainings[way], batches[way])
            # The first is for caches and the processors' clocks.
            if number > 0:
                rates[way].append(STEPS * batch * world / seconds)
    trainings["ps"][1].pull()
    if rank == 0:
        accuracy = {way: 100 * right(trainings[way][0], held_out) / len(held_out) for way in ("ps", "ddp")}
        print(json.dumps({**rates, "accuracy": accuracy}))
    dist.barrier()
    trainings["ps"][1].close()


if __name__ == "__main__":
    os.environ.setdefault("USE_LIBUV", "0")
    main(sys.argv[1], *map(int, sys.argv[2:]))
