#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a safetensors file as its format says and prints what it found: one line for each tensor,
NAME DTYPE SHAPE HEX, and one for each entry of the metadata. Ends with 1 when the file is wrong."""
import json
import math
import struct
import sys

BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
         "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8}


def fail(why):
    sys.exit(f"{sys.argv[1]}: {why}")


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    if length % 8 or length > 100_000_000 or 8 + length > len(data):
        fail(f"the header's length is {length}")
    if data[8:9] != b"{":
        fail("the header does not begin with a brace")
    head = json.loads(data[8:8 + length].decode("utf-8"))
    body = data[8 + length:]
    for key, value in sorted(head.pop("__metadata__", {}).items()):
        if not isinstance(value, str):
            fail(f"metadata {key} is no text")
        print("metadata", key, value)
    end = 0
    for name, tensor in sorted(head.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = tensor["data_offsets"]
        size = BYTES[tensor["dtype"]]
        if first != end or last - first != size * math.prod(tensor["shape"]):
            fail(f"{name} is from {first} to {last}, after {end}")
        if first % min(size, 8):
            fail(f"{name} is not aligned")
        end = last
        shape = ",".join(str(extent) for extent in tensor["shape"])
        print(name, tensor["dtype"], f"[{shape}]", body[first:last].hex())
    if end != len(body):
        fail(f"{len(body) - end} bytes are left over")


main()
