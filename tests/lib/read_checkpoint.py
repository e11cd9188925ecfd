# SPDX-License-Identifier: Apache-2.0
"""A second reader of checkpoint directories, written from checkpoint/FORMAT.md alone: it shares no code with
the first, so that what the two agree on is what the document says. Needs numpy and xxhash."""
import json
import os

import numpy
import xxhash

DTYPES = {
    "f16": "<f2", "bf16": "<u2", "f32": "<f4", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4",
    "i64": "<i8", "u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "bool": "u1", "c64": "<c8",
    "c128": "<c16", "bytes": "u1",
}  # fmt: skip


class Damaged(Exception):
    """A file that is not what another says of it."""


def digest(data):
    return xxhash.xxh3_128_hexdigest(data)


def must(condition, text):
    if not condition:
        raise Damaged(text)


class Shard:
    """The files of one rank."""

    def __init__(self, folder, manifest, entry):
        name = f"shard-{entry['rank']:05d}-of-{manifest['world']:05d}"
        must(entry["file"] == name + ".h5" and entry["index"] == name + ".index", f"{name}: other names")
        self.path = os.path.join(folder, entry["file"])
        path = os.path.join(folder, entry["index"])
        with open(path, "rb") as stream:
            text = stream.read()
        must(len(text) == entry["index_size"], f"{path}: size")
        must(digest(text) == entry["index_xxh3"], f"{path}: digest")
        self.index = json.loads(text)
        must(self.index["format"] == "bellows-index/2", f"{path}: format")
        for key, value in (("step", manifest["step"]), ("rank", entry["rank"]), ("world", manifest["world"]),
                           ("size", entry["size"])):  # fmt: skip
            must(self.index[key] == value, f"{path}: {key}")
        must(os.path.getsize(self.path) == entry["size"], f"{self.path}: size")

    def blocks(self):
        """All bytes, verified."""
        size = self.index["block"]
        with open(self.path, "rb") as stream:
            for number, expected in enumerate(self.index["digests"]):
                block = stream.read(size)
                must(digest(block) == expected, f"{self.path}: block {number}")
                yield block
            must(not stream.read(1), f"{self.path}: too few digests")

    def parts(self):
        """(entry, the part as an array) of each array."""
        data = b"".join(self.blocks())
        for entry in self.index["arrays"]:
            shape = list(entry["shape"])
            if shape:
                shape[entry["axis"]] = entry["count"]
            kind = numpy.dtype(DTYPES[entry["dtype"]])
            count = int(numpy.prod(shape, dtype=object))
            offset = entry["offset"] if count else 0
            yield entry, numpy.frombuffer(data, kind, count, offset).reshape(shape)


class Step:
    """A committed step. shards: by rank; arrays: name -> whole array; per_rank: name -> {rank: array}; values: name ->
    array; dtypes: name -> type, since bf16 and bool have none in numpy."""

    def __init__(self, folder):
        times = []
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as stream:
            manifest = json.load(stream, parse_float=lambda text: times.append(text) or float(text))
        must(manifest["format"] == "bellows-checkpoint/2", "format")
        expected = manifest.pop("digest")
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for time in times:
            text = text.replace(f'"time":{manifest["time"]!r}', f'"time":{time}')
        must(digest(text.encode()) == expected, "the manifest's digest")
        must(os.path.basename(folder) == f"step-{manifest['step']:020d}", "another step's manifest")
        must([e["rank"] for e in manifest["shards"]] == list(range(manifest["world"])), "ranks")
        self.manifest = manifest
        self.arrays, self.per_rank, self.values, self.dtypes = {}, {}, {}, {}
        self._covered = {}
        self.shards = [Shard(folder, manifest, entry) for entry in manifest["shards"]]
        for shard in self.shards:
            self._take(shard)
        for name, covered in self._covered.items():
            must((covered == 1).all(), f"{name} is not whole")

    def _take(self, shard):
        for entry, part in shard.parts():
            name = entry["name"]
            self.dtypes[name] = entry["dtype"]
            if entry["layout"] == "per_rank":
                self.per_rank.setdefault(name, {})[shard.index["rank"]] = part
                continue
            shape = entry["shape"]
            whole = self.arrays.setdefault(name, numpy.zeros(shape, part.dtype))
            covered = self._covered.setdefault(name, numpy.zeros(shape[entry["axis"]] if shape else 1, int))
            rows = slice(entry["first"], entry["first"] + entry["count"])
            covered[rows] += 1
            if shape:
                whole[(slice(None),) * entry["axis"] + (rows,)] = part
            else:
                whole[()] = part
        for entry in shard.index["values"]:
            kind = numpy.dtype(DTYPES[entry["dtype"]])
            self.dtypes[entry["name"]] = entry["dtype"]
            data = numpy.frombuffer(bytes.fromhex(entry["hex"]), kind)
            self.values[entry["name"]] = data.reshape(entry["shape"])
