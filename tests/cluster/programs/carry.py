#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that moves between releases: carry.py save|restore DIR RANK WORLD

Each rank holds arrays of random bits, whole ones of several types and its part of one that is cut.
save: they are step 1 of DIR. restore: restores the newest step, holds every bit against what was
saved, and saves all of it again as the next step. Exit status 1: some bits are other ones.
"""
import array
import random
import sys

import bellows

LENGTH, CUT = 70000, 12 * 50000
TRACKED = {"text": "a line\n", "numbers": [1.5, -0.0, 1 << 60, None], "deep": {"empty": [], "yes": True}}


def random_array(code, length):
    size = array.array(code).itemsize * length
    return array.array(code, random.Random(f"{code} {length}").randbytes(size))


def main():
    action, folder, rank, world = sys.argv[1:]
    rank, world = int(rank), int(world)
    checkpoint = bellows.Checkpoint(dir=folder, rank=rank, world=world)
    wanted = {code: random_array(code, LENGTH) for code in "fdbhiqBHIQ"}
    share = CUT // world
    first = rank * share
    wanted["cut"] = random_array("f", CUT)[first:first + share]
    arrays = {name: array.array(part.typecode, bytes(len(part) * part.itemsize))
              for name, part in wanted.items()}  # fmt: skip
    for name, part in arrays.items():
        checkpoint.register(name, part, sharded=bellows.Shard(0, first, CUT) if name == "cut" else None)
    state = {}
    checkpoint.track(state=state)
    step = 0
    if action == "save":
        for name, part in arrays.items():
            memoryview(part)[:] = wanted[name]
        state.update(TRACKED)
    else:
        step = checkpoint.restore()
        wrong = [name for name in wanted if arrays[name].tobytes() != wanted[name].tobytes()]
        if wrong or repr(state) != repr(TRACKED):
            sys.exit(f"rank {rank}: step {step} has other bits in {wrong or state}")
    checkpoint.save(step + 1)
    checkpoint.close()
    print(f"rank {rank} of {world}: step {step} right")


main()
