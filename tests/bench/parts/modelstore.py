# SPDX-License-Identifier: Apache-2.0
"""Models that a node holds once: opening one that is in memory, reading it, and sixteen processes over it."""
import contextlib
import os
import re
import statistics
import subprocess

import modelstore_cold
import modelstore_inference
import rows
from modelstore_place import (QUICK_LARGE, SharedHugePages, Store, drop_cache, evict, large_size, raw_seconds,
                              why_no_huge_pages)

SMALL = 1 << 20
LARGE = 1 << 30
PROCESSES = 16
OPENS = 400
READS = 8
COLDS = 8
REFUSALS = 40  # pairs of a hundred each
COPIES = 4  # times that sixteen processes read it
OPEN_GOAL_US = 100
READ_GOAL = 1.1
COLD_GOAL = 0.9
COPIES_GOAL = 1.05


def cold_pairs(store, model, count):
    """(bytes a second of a load from the disk until it is lent, of a raw read of the file)."""
    path = f"{store.dir}/{model}"
    size = os.path.getsize(path)
    pairs = []
    for _ in range(count):
        evict(store, model)
        drop_cache(path)
        raw = raw_seconds(store, path)
        cold = subprocess.run(store.command("open", model, 1), check=True, capture_output=True, text=True,
                              timeout=300)
        pairs.append((size / (float(cold.stdout) / 1e6), size / raw))
    return pairs


def refused_ratios(store, count):
    """Of an open of a name that may not be seen to one of a name that is not there."""
    def median_us(name):
        command = store.command("refused", name, 100)
        command[2] = f"{store.dir}/others.sock"
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return statistics.median(map(float, done.stdout.split()))
    return [median_us("small") / median_us("smaller") for _ in range(count)]


def proportional_bytes(process):
    """Its memory, of which what it shares with others counts for each in part."""
    with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as stream:
        return 1024 * int(re.search(r"^Pss: +(\d+) kB", stream.read(), re.M)[1])


def say(process, word):
    """Tells a process to go on, and waits until it says that it has."""
    if word == "read":
        process.stdin.write("go\n")
        process.stdin.flush()
    if process.stdout.readline().strip() != word:
        raise RuntimeError(f"a process did not {word} the model")


def copies(store, model, size):
    """Bytes that processes over one model take more when all have read it, in sizes of the model."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(store.command("hold", model), text=True,
                                                          stdin=subprocess.PIPE,
                                                          stdout=subprocess.PIPE))
                     for _ in range(PROCESSES)]
        try:
            for process in processes:
                say(process, "open")
            before = sum(map(proportional_bytes, processes))
            for process in processes:
                say(process, "read")
            return (sum(map(proportional_bytes, processes)) - before) / size
        finally:
            for process in processes:
                process.stdin.close()


def rows_of_pages(options, pages, size):
    """Of reads of a model of so many bytes, and of loads of one that is smaller, in pages of one kind."""
    more = ["--small-pages"] if pages == "small" else []
    with Store(options, {"large": size}, *more) as store:
        reads = store.samples("read", "large", options.count(READS))
    with Store(options, {"large": min(size, LARGE)}, *more) as store:
        colds = cold_pairs(store, "large", options.count(COLDS))
    return [
        rows.row(f"modelstore.first_read.{pages}_pages", [lent / own for lent, own in reads], "x", "lower", READ_GOAL,
                 ("a read of the program's own memory, s", statistics.median(own for _, own in reads)),
                 note=f"open and read all {size >> 20} MB once, against memory of the program that it has read before"),
        rows.row(f"modelstore.cold_vs_raw.{pages}_pages", [cold / raw for cold, raw in colds], "x", "higher", COLD_GOAL,
                 ("a raw read, bytes/s", statistics.median(raw for _, raw in colds)),
                 note="from the disk to lent, with its digest, against a read past the page cache: "
                      f"{statistics.median(cold for cold, _ in colds) / 1e9:.2f} GB/s"),
    ]


def page_rows(options):
    size = large_size(options)[0]
    result = rows_of_pages(options, "small", size)
    why = why_no_huge_pages()
    if why:
        left_out = ("modelstore.first_read.huge_pages", "modelstore.cold_vs_raw.huge_pages")
        return [*result, *(rows.left_out(name, why) for name in left_out)]
    with SharedHugePages():
        return [*result, *rows_of_pages(options, "huge", size)]


def run(options):
    large = QUICK_LARGE if options.quick else LARGE
    label = f"{large >> 20}MB"
    with Store(options, {"small": SMALL, "large": large}) as store:
        small_us = [sample[0] for sample in store.samples("open", "small", options.count(OPENS))]
        large_us = [sample[0] for sample in store.samples("open", "large", options.count(OPENS))]
        refusals = refused_ratios(store, options.count(REFUSALS))
    # What the kernel says of a process's memory leaves huge pages out.
    with Store(options, {"large": large}, "--small-pages") as store:
        sixteen = [copies(store, "large", large) for _ in range(options.count(COPIES))]
    return [
        rows.row("modelstore.warm_open_us.1MB", small_us, "us", "lower", OPEN_GOAL_US,
                 note="open, find a tensor and close, of a model in memory"),
        rows.row(f"modelstore.warm_open_us.{label}", large_us, "us", "lower", OPEN_GOAL_US),
        rows.row("modelstore.hidden_vs_absent", refusals, "x", "lower", None,
                 note="an open of a name that the tenant may not see, against one that does not exist"),
        rows.row("modelstore.copies", sixteen, "x", "lower", COPIES_GOAL,
                 note=f"memory of {PROCESSES} processes that have read the model, in sizes of the model"),
        *page_rows(options),
        *modelstore_inference.run(options),
        *modelstore_cold.run(options),
    ]
