#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a program that saves its part of an array: peer_rank.py KIND DIR BYTES.

RANK and WORLD_SIZE say which. For each line of its input it saves once and answers with a line of JSON:
how long the save kept it, and how long until its part was durable.
"""
import dataclasses
import functools
import json
import os
import shutil
import sys
import time

import numpy

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def bellows_saver(directory, array):
    import bellows
    checkpoint = bellows.Checkpoint(dir=directory, rank=RANK, world=WORLD, keep=1)
    checkpoint.register("data", array, sharded=bellows.Shard(
        axis=0, first=RANK * len(array), total=WORLD * len(array)))
    checkpoint.restore()

    def save(number):
        begin = time.monotonic()
        checkpoint.save(number)
        stall = time.monotonic() - begin
        checkpoint.wait()
        return stall, time.monotonic() - begin
    return save


def waiting(write):
    """A saver that is done when it returns. write(NUMBER) gives what the next save may remove."""
    before = []

    def save(number):
        for path in before:
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        before.clear()
        begin = time.monotonic()
        before.extend(write(number))
        took = time.monotonic() - begin
        return took, took
    return save


def torch_saver(directory, array):
    import torch
    tensor = torch.from_numpy(array)

    def write(number):
        path = f"{directory}/{number}-{RANK}.pt"
        with open(path, "wb") as stream:
            torch.save({"data": tensor}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        return [path]
    return waiting(write)


def h5py_saver(directory, array):
    import h5py

    def write(number):
        path = f"{directory}/{number}-{RANK}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("data", data=array)
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        return [path]
    return waiting(write)


def import_sharded():
    """PyTorch 1.13's distributed checkpoints. Python 3.11 refuses defaults of a dataclass that can't
    be hashed, which is all that keeps them from being imported there."""
    plain = dataclasses.dataclass

    def hashable(cls=None, **options):
        if cls is None:
            return functools.partial(hashable, **options)
        made = plain(cls, **options)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made
    dataclasses.dataclass = hashable
    try:
        from torch.distributed._shard import checkpoint, sharded_tensor
        from torch.distributed._shard.metadata import ShardMetadata
    finally:
        dataclasses.dataclass = plain
    return checkpoint, sharded_tensor, ShardMetadata


def dcp_saver(directory, array):
    checkpoint, sharded_tensor, metadata = import_sharded()
    import torch
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=RANK,
                                         world_size=WORLD)
    place = metadata(shard_offsets=[RANK * len(array)], shard_sizes=[len(array)], placement=f"rank:{RANK}/cpu")
    shard = sharded_tensor.Shard(torch.from_numpy(array), place)
    tensor = sharded_tensor.init_from_local_shards([shard], [WORLD * len(array)])

    def write(number):
        path = f"{directory}/{number}"
        checkpoint.save_state_dict({"data": tensor}, checkpoint.FileSystemWriter(path))
        return [path] if RANK == 0 else []
    return waiting(write)


SAVERS = {"bellows": bellows_saver, "torch_save": torch_saver, "torch_dcp": dcp_saver, "h5py": h5py_saver}


def main():
    kind, directory, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    array = numpy.arange(size // 4 // WORLD, dtype=numpy.float32)
    save = SAVERS[kind](directory, array)
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        array[0] = number
        stall, durable = save(number + 1)
        print(json.dumps({"stall": stall, "durable": durable}), flush=True)


if __name__ == "__main__":
    main()
