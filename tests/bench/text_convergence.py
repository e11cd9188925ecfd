#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of examples/paramserver at a mini-batch of 1, of learners that don't wait for each other and of plain SGD:
text_convergence.py SEED LEARNERS SAMPLES EPOCHS, with the socket of a new bellows-ps in BELLOWS_PS_SOCKET.

Both use the same samples as often, begin with the same weights, and have rates that fall to 0 in the same way: where
they stay as they are, the last few updates decide more than who made them. It prints a JSON object: "serial" and
"async", the percentages of held-out samples that are right, and "stale": for each gradient, how many updates by others
came between the weights that it was computed with and those that contain it: at least its staleness.
"""
import json
import multiprocessing
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/paramserver"))
from bellows import ps  # pylint: disable=wrong-import-position
from network import Net, Samples, right, train  # pylint: disable=wrong-import-position
from sections import packages  # pylint: disable=wrong-import-position

RATE = 0.02  # at first; it falls in half a wave of a cosine


class Watched:
    """An optimizer that counts what others do between two of its own weights."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.zero_grad = optimizer.zero_grad
        self.stale = []

    def step(self):
        before = self.optimizer.updates
        self.optimizer.step()
        self.stale.append(self.optimizer.updates - before - 1)


def orders(samples, seed, epochs):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(len(samples), generator=generator) for _ in range(epochs)]


class Falling:
    """An optimizer of torch with the schedule that the parameter server has."""

    def __init__(self, optimizer, updates):
        self.optimizer = optimizer
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        self.zero_grad = optimizer.zero_grad

    def step(self):
        self.optimizer.step()
        self.schedule.step()


def updates_of(orders_of_epochs):
    return sum(map(len, orders_of_epochs))


def serial(net, samples, orders_of_epochs):
    optimizer = Falling(torch.optim.SGD(net.parameters(), lr=RATE), updates_of(orders_of_epochs))
    for order in orders_of_epochs:
        train(net, optimizer, samples.batches(1, order))


def optimizer_of(net, updates):
    return ps.Optimizer(net.parameters(), lr=RATE, schedule=ps.CosineSchedule(updates), sparse=[net.words.weight])


def learn(net, samples, orders_of_epochs, updates, sender):
    with optimizer_of(net, updates) as optimizer:
        watched = Watched(optimizer)
        for order in orders_of_epochs:
            train(net, watched, samples.batches(1, order))
    sender.send(watched.stale)


def in_parallel(make_net, samples, orders_of_epochs, learners):
    """Trains the network of the parameter server; what each learner counted."""
    fork = multiprocessing.get_context("fork")
    started = []
    for part in range(learners):
        receiver, sender = fork.Pipe(duplex=False)
        mine = [order[part::learners] for order in orders_of_epochs]
        process = fork.Process(target=learn, args=(make_net(), samples, mine, updates_of(orders_of_epochs), sender), daemon=True)
        process.start()
        sender.close()
        started.append((process, receiver))
    stale = [count for _, receiver in started for count in receiver.recv()]
    for process, _ in started:
        process.join()
    return stale


def main(seed, learners, count, epochs):
    torch.set_num_threads(1)
    every = packages()
    sections = sorted({package.section for package in every})
    held_out = Samples(every[::4], sections)
    rest = [package for i, package in enumerate(every) if i % 4]
    samples = Samples(rest[:: max(1, len(rest) // count)][:count], sections)
    orders_of_epochs = orders(samples, seed, epochs)

    def make_net():
        torch.manual_seed(seed)
        return Net(len(sections), sparse=True)

    def accuracy(net):
        return 100 * right(net, held_out) / len(held_out)

    # First those that are forked: a process that has computed gradients has threads that would be missing.
    net = make_net()
    with optimizer_of(net, updates_of(orders_of_epochs)) as optimizer:
        stale = in_parallel(make_net, samples, orders_of_epochs, learners)
        optimizer.pull()
        result = {"async": accuracy(net), "stale": stale}
    alone = make_net()
    serial(alone, samples, orders_of_epochs)
    print(json.dumps({"serial": accuracy(alone), **result}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
