# SPDX-License-Identifier: Apache-2.0
"""Trains a network for each of many customers with the same terms, and batches from 1 to 128.

A customer is a maintainer of packages in Debian, who wants to be told the section of a package by
its description. Customers have little data, and nobody chooses a learning rate for each: that is
training as a service. Learners on this machine train one customer's network after the other, with
a bellows-ps (which must be on PATH) for each; all have the same number of epochs.
"""

import argparse
import collections
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import torch
from bellows import ps

from network import Net, Samples, right, train
from plot import plot
from sections import packages

FEWEST = 15  #: packages of a section that counts
MOST = 600  #: packages of a customer that are used
FITTED = 95  #: percent of its own samples that a network has to know to have converged


class Customer(NamedTuple):
    name: str
    sections: int
    samples: Samples
    held_out: Samples


def customers():
    """Maintainers of at least 100 packages in at least 3 sections, in the order of names."""
    theirs = collections.defaultdict(list)
    for package in packages():
        theirs[package.maintainer].append(package)
    for name in sorted(theirs):
        counts = collections.Counter(package.section for package in theirs[name])
        chosen = [package for package in theirs[name] if counts[package.section] >= FEWEST]
        sections = sorted({package.section for package in chosen})
        if len(chosen) >= 100 and len(sections) >= 3:
            chosen = chosen[:: -(-len(chosen) // MOST)]
            yield Customer(
                name.partition(" <")[0],
                len(sections),
                Samples([package for i, package in enumerate(chosen) if i % 4], sections),
                Samples(chosen[::4], sections),
            )


def optimizer_for(net, batch, options):
    rate = options.rate * (batch if options.scale else 1)
    # The server applies a gradient while the next is computed.
    return ps.Optimizer(net.parameters(), lr=rate, sparse=[net.words.weight], overlap=True)


def learn(customer, batch, part, options):
    """One learner: its part of the samples, which is another one in each epoch."""
    net = Net(customer.sections, sparse=True)
    with optimizer_for(net, batch, options) as optimizer:
        for epoch in range(options.epochs):
            generator = torch.Generator().manual_seed(epoch)
            order = torch.randperm(len(customer.samples), generator=generator)
            train(net, optimizer, customer.samples.batches(batch, order[part :: options.learners]))


@contextlib.contextmanager
def server(learners):
    """A bellows-ps, whose socket is in the environment."""
    with tempfile.TemporaryDirectory() as directory:
        socket = os.environ["BELLOWS_PS_SOCKET"] = f"{directory}/socket"
        command = ["bellows-ps", f"--socket={socket}", f"--learners={learners}"]
        with open(f"{directory}/log", "a+", encoding="utf-8") as log:
            process = subprocess.Popen(command, stderr=log)
            try:
                said = ""
                # The socket is there a moment before anyone listens.
                while "is ready" not in said:
                    if process.poll() is not None:
                        raise RuntimeError(f"bellows-ps has ended: {said}")
                    time.sleep(0.01)
                    log.seek(0)
                    said = log.read()
                yield
            finally:
                process.terminate()
                process.wait()


def percent(net, samples):
    return 100 * right(net, samples) / len(samples)


def trained(customer, batch, options):
    """What became of one customer's network."""
    torch.manual_seed(options.seed)
    net = Net(customer.sections, sparse=True)
    fork = multiprocessing.get_context("fork")
    with server(options.learners + 1):
        # A learner too, that only looks: the first to join says how the weights begin.
        with optimizer_for(net, batch, options) as optimizer:
            begin = time.monotonic()
            learners = [
                fork.Process(target=learn, args=(customer, batch, part, options))
                for part in range(options.learners)
            ]
            for learner in learners:
                learner.start()
            for learner in learners:
                learner.join()
            if any(learner.exitcode for learner in learners):
                raise RuntimeError(f"a learner has failed for {customer.name}")
            optimizer.pull()
            return {
                "customer": customer.name,
                "batch": batch,
                "samples": len(customer.samples),
                "sections": customer.sections,
                "updates": optimizer.updates,
                "seconds": time.monotonic() - begin,
                "fitted": percent(net, customer.samples),
                "accuracy": percent(net, customer.held_out),
            }


def summary(results, batch):
    """Of all customers, with this batch."""
    these = [result for result in results if result["batch"] == batch]
    accuracies = [result["accuracy"] for result in these]
    return {
        "batch": batch,
        "converged": 100 * statistics.mean(result["fitted"] >= FITTED for result in these),
        "mean": statistics.mean(accuracies),
        "least": min(accuracies),
        "seconds": sum(result["seconds"] for result in these),
    }


def table(batches):
    form = "{batch:5d} {converged:8.0f} % {mean:13.1f} % {least:4.1f} % {seconds:7.0f}"
    head = "batch  converged  accuracy: mean  least  seconds"
    return "\n".join([head, *(form.format(**row) for row in batches)])


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[2**i for i in range(8)])
    parser.add_argument("--customers", type=int, help="so many of them; all by default")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--json", metavar="FILE", help="write all results there")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--plot", metavar="FILE", help="write a plot there, as SVG")
    parser.add_argument("--rate", type=float, default=0.03)
    parser.add_argument("--scale", action="store_true", help="multiply the rate with the batch")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    options = parsed()
    torch.set_num_threads(1)
    results = []
    for customer in itertools.islice(customers(), options.customers):
        for batch in options.batches:
            results.append(trained(customer, batch, options))
        print(customer.name, file=sys.stderr)
    batches = [summary(results, batch) for batch in options.batches]
    print(table(batches))
    if options.json:
        said = {"terms": vars(options), "batches": batches, "results": results}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(said, file, indent=1)
    if options.plot:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(plot(batches))


if __name__ == "__main__":
    main()
