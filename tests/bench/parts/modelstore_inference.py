# SPDX-License-Identifier: Apache-2.0
"""From a question to the first output of a network: with the model store, and with what programs do today.

A row's value is their time as a multiple of ours. The store has the network in memory, in huge pages where this
program can have the kernel make them, and the page cache has their files: this is what they can do best. networks.py
says what the networks are.
"""
import contextlib
import statistics
import subprocess
import tempfile
import time

import cluster
import rows
from modelstore_place import (Asker, SharedHugePages, Store, command_of, environment_of, large_size, made_network,
                              why_no_huge_pages, why_no_torch)

PEERS = {"torch_load": "torch.load", "read": "a plain reader of safetensors", "map": "a private map of the file"}
PAPER = {"alexnet": 24, "vgg19": 24, "resnet50": 24, "large": 210}
PAPER_RATE = 8
THIN = 8  # of quick networks
STARTS = 3
QUESTIONS = {"alexnet": 8, "vgg19": 5, "resnet50": 8, "large": 3}
READS = 6
OPENS = 400
OPEN_GOAL_US = 100
PROCESSES = (1, 4, 16)
WINDOWS = 3
WINDOW_S = 2
WARM_4GB = "modelstore.warm_open_us.4096MB"


def start_seconds(options, store, what, how):
    """From the start of a program to its first output."""
    begin = time.monotonic()
    with subprocess.Popen(command_of("once", what, how), env=environment_of(options, store),
                          stdout=subprocess.PIPE) as process:
        line = process.stdout.readline()
        seconds = time.monotonic() - begin
    if line != b"output\n":
        raise RuntimeError(f"a program with {what['network']} by {how} has no output")
    return seconds


def started(options, store, what):
    """Rounds of seconds by way. The first start has the store load it, and does not count."""
    start_seconds(options, store, what, "store")
    return [{how: start_seconds(options, store, what, how) for how in ("store", "torch_load", "read")}
            for _ in range(options.count(STARTS))]


def asked(options, store, what):
    """Likewise, in one program that has torch and has asked before; and the seconds of a second output."""
    with Asker(options, store, what) as asker:
        rounds = [{how: asker.ask(f"ask {how}") for how in ("store", *PEERS)}
                  for _ in range(options.count(QUESTIONS[what["network"]]) + 1)][1:]
    second = statistics.median(each["store"][1] for each in rounds)
    return [{how: seconds[0] for how, seconds in each.items()} for each in rounds], second


def ratio_rows(name, rounds, note, paper):
    """One row for each peer."""
    result = []
    for peer, says in PEERS.items():
        if peer not in rounds[0]:
            continue
        theirs = statistics.median(each[peer] for each in rounds)
        result.append(rows.row(
            f"{name}.{peer}", [each[peer] / each["store"] for each in rounds], "x", "higher", None,
            (f"{says}, s", theirs), note=f"{note}; the TrIMS paper says {paper}" if peer == "torch_load" else None))
    return result


def ours(rounds):
    return f"{statistics.median(each['store'] for each in rounds):.4f} s with the store"


def network_rows(options, store, what, label):
    name = f"modelstore.first_inference.{label}"
    paper = PAPER[what["network"]]
    starts = started(options, store, what)
    result = ratio_rows(f"{name}.start", starts, f"from a program's start: {ours(starts)}", paper)
    questions, second = asked(options, store, what)
    result += ratio_rows(f"{name}.loaded", questions,
                         f"in a program that has torch: {ours(questions)}, of which the output alone {second:.4f}",
                         paper)
    done = subprocess.run(store.command("first", what["store"], what["safetensors"], options.count(READS)),
                          check=True, timeout=300, capture_output=True, text=True)
    reads = [dict(zip(("store", "read"), map(float, line.split()))) for line in done.stdout.splitlines()]
    result.append(rows.row(
        f"{name}.cpp", [each["read"] / each["store"] for each in reads], "x", "higher", None,
        ("read(2) of the file and a sum of its bytes, s", statistics.median(each["read"] for each in reads)),
        note=f"open and a sum of all bytes, in C++: {ours(reads)}; the TrIMS paper says {paper}"))
    return result


def rate_of(askers, how, seconds):
    """First outputs in a second, of all of them at the same time."""
    for asker in askers:
        asker.tell(f"rate {how} {seconds}")
    return sum(asker.heard()[0] for asker in askers)


def throughput_rows(options, store, what):
    seconds = 0.5 if options.quick else WINDOW_S
    result = []
    with contextlib.ExitStack() as stack:
        askers = [stack.enter_context(Asker(options, store, what, OMP_NUM_THREADS="1"))
                  for _ in range(max(PROCESSES))]
        for how in ("store", "torch_load"):
            rate_of(askers, how, 0.001)
        for count in PROCESSES:
            pairs = [[rate_of(askers[:count], how, seconds) for how in ("store", "torch_load")]
                     for _ in range(options.count(WINDOWS))]
            our_rate, theirs = (statistics.median(column) for column in zip(*pairs))
            result.append(rows.row(
                f"modelstore.throughput.{count}", [store_rate / load_rate for store_rate, load_rate in pairs],
                "x", "higher", None, ("torch.load, functions/s", theirs),
                note=f"functions/s (open, first output of resnet50, close; one thread each) in {count} processes: "
                     f"{our_rate:.2f} with the store; the TrIMS paper says {PAPER_RATE}"))
    return result


def warm_row(options, store, size, why_not_4gb):
    if why_not_4gb:
        return rows.left_out(WARM_4GB, f"{why_not_4gb}; what is called large has {size >> 20} MB")
    opens = [sample[0] for sample in store.samples("open", "large", options.count(OPENS))]
    return rows.row(WARM_4GB, opens, "us", "lower", OPEN_GOAL_US)


def run(options):
    why = why_no_torch()
    if why:
        return [rows.left_out(name, why) for name in
                ("modelstore.first_inference", "modelstore.throughput", WARM_4GB)]
    size, why_not_4gb = large_size(options)
    with tempfile.TemporaryDirectory(prefix="bench-networks-", dir=options.builddir) as directory:
        thin = THIN if options.quick else 1
        networks = [made_network(options, directory, name, size if name == "large" else thin) for name in PAPER]
        pages = contextlib.nullcontext() if why_no_huge_pages() else SharedHugePages()
        with pages, Store(options, {each["store"]: each["safetensors"] for each in networks}) as store:
            result = []
            for what in networks:
                large = what["network"] == "large"
                label = f"mlp_{size >> 20}MB" if large else what["network"]
                cluster.note(f"{label}: first outputs")
                result += network_rows(options, store, what, label)
                if what["network"] == "resnet50":
                    result += throughput_rows(options, store, what)
            return result + [warm_row(options, store, size, why_not_4gb)]
