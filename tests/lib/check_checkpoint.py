#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what a second reader, h5py and h5dump find in a step with what the tests wrote there.

Usage: check_checkpoint.py STEP_DIR

Every byte of every array says where it belongs: (7 * its place in the whole array + type's number [+ 100 *
rank, when per rank]) mod 256.
"""
import os
import subprocess
import sys
import tempfile

import h5py
import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from read_checkpoint import DTYPES, Step  # noqa: E402

# As in checkpoint/include/bellows.h.
NUMBERS = {name: number for number, name in enumerate(
    "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c64 c128 bytes".split(), 1)}  # fmt: skip


def expected_bytes(dtype, size, rank=0):
    return ((numpy.arange(size) * 7 + NUMBERS[dtype] + 100 * rank) % 256).astype("u1").tobytes()


def check(condition, text):
    if not condition:
        sys.exit(f"{text}: not as it was written")


def check_reader(step):
    for name, array in step.arrays.items():
        check(array.tobytes() == expected_bytes(step.dtypes[name], array.nbytes), name)
    for name, ranks in step.per_rank.items():
        for rank, array in ranks.items():
            check(array.tobytes() == expected_bytes(step.dtypes[name], array.nbytes, rank), f"{name} of {rank}")
    for name, array in step.values.items():
        check(array.tobytes() == expected_bytes(step.dtypes[name], array.nbytes), name)


def raw(dataset, dtype):
    """The bytes of a dataset, or of an attribute's value, as stored."""
    kind = h5py.check_enum_dtype(dataset.dtype) or None
    check(dtype != "bool" or kind == {"FALSE": 0, "TRUE": 1} or dataset.dtype == bool, "bool's type")
    out = numpy.zeros(dataset.shape, DTYPES[dtype])
    if dtype in ("bf16", "bool", "bytes"):
        # Read as stored: numpy would convert, or has no such type.
        memory = dataset.id.get_type()
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, out, memory)
        return out.tobytes()
    return numpy.asarray(dataset[()], DTYPES[dtype]).tobytes()


def check_dataset(group, path, dtype, array):
    dataset = group[path]
    check(dataset.shape == array.shape, f"{path}'s shape")
    if array.size:
        check(raw(dataset, dtype) == array.tobytes(), path)


def check_view(folder, step):
    with h5py.File(os.path.join(folder, "whole.h5"), "r") as view:
        for name, array in step.arrays.items():
            check_dataset(view, f"/arrays/{name}", step.dtypes[name], array)
        for name, ranks in step.per_rank.items():
            for rank, array in ranks.items():
                check_dataset(view, f"/per_rank/{name}/{rank:05d}", step.dtypes[name], array)
        check(set(view["/values"].attrs) == set(step.values), "the names of values")
        for name, array in step.values.items():
            attribute = h5py.h5a.open(view["/values"].id, name.encode())
            check(attribute.shape == array.shape, f"{name}'s shape")
            out = numpy.zeros(array.shape, array.dtype)
            attribute.read(out, mtype=attribute.get_type())
            check(out.tobytes() == array.tobytes(), name)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0 or "unable" in done.stdout:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-2000:]}")


def check_attributes(step):
    """What FORMAT.md says of the attributes: arrays of u64 with one axis."""
    def check_values(place, expected):
        for name, values in expected.items():
            stored = place.attrs[name]
            check(stored.dtype == "<u8" and stored.tolist() == values, f"{place.name}: {name}")

    for shard in step.shards:
        index = shard.index
        with h5py.File(shard.path, "r") as file:
            check_values(file, {"bellows_format": [2], **{k: [index[k]] for k in ("step", "rank", "world")}})
            for entry in index["arrays"]:
                group = "per_rank" if entry["layout"] == "per_rank" else "arrays"
                check_values(file[f"/{group}/{entry['name']}"], {
                    "layout": [("replicated", "sharded", "per_rank").index(entry["layout"])],
                    "axis": [entry["axis"]], "first": [entry["first"]], "global_shape": entry["shape"]})


def check_dump(path, arrays):
    """h5dump finds in a file what [(dataset's path, array)] says."""
    with tempfile.NamedTemporaryFile() as out:
        names = [word for name, _ in arrays for word in ("-d", name)]
        run("h5dump", *names, "-b", "FILE", "-o", out.name, path)
        check(out.read() == b"".join(array.tobytes() for _, array in arrays), f"{path} in h5dump")


def check_tools(folder, step):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".h5"):
            run("h5dump", "-H", os.path.join(folder, name))
    for shard in step.shards:
        group = {"per_rank": "/per_rank"}
        check_dump(shard.path, [(f"{group.get(entry['layout'], '/arrays')}/{entry['name']}", part)
                                for entry, part in shard.parts()])
    whole = os.path.join(folder, "whole.h5")
    own = [(f"/per_rank/{name}/{rank:05d}", array) for name, ranks in step.per_rank.items()
           for rank, array in ranks.items()]
    check_dump(whole, [(f"/arrays/{name}", array) for name, array in step.arrays.items()] + own)


def main():
    folder = os.path.realpath(sys.argv[1])
    step = Step(folder)
    check_reader(step)
    check_view(folder, step)
    check_attributes(step)
    check_tools(folder, step)
    print(f"{len(step.arrays)} arrays, {len(step.per_rank)} per rank, {len(step.values)} values")


if __name__ == "__main__":
    main()
