#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A program that asks a network one question: answer.py make|once|serve WHAT [HOW].

WHAT is JSON: network, size (networks.network), store (the model's name), pt and safetensors (paths).
`make` writes the two files. `once` says when it has the first output. `serve` answers each line with one
of numbers: "ask HOW": seconds until the first output and, with the store, of a second one; "load HOW":
seconds until it has the tensors; "rate HOW SECONDS": first outputs in a second, one after another.

HOW is where the weights come from: see LOADS. Each way puts them into a network without memory, so that
none pays for values that are thrown away.
"""
import json
import sys
import time

import torch

import networks


def from_torch_load(what):
    return torch.load(what["pt"])


def _views(what, bytes_of):
    from bellows.models.files import read_header
    from bellows.models.model import torch_dtype
    header = read_header(what["safetensors"])
    return {name: bytes_of(header.data + entry.begin, entry.end - entry.begin)
                  .view(torch_dtype(entry.dtype)).reshape(entry.shape)
            for name, entry in header.entries.items()}


def from_read(what):
    """A plain reader of safetensors, with one copy: into the tensors' own memory."""
    with open(what["safetensors"], "rb", buffering=0) as file:
        def piece(begin, size):
            memory = torch.empty(size, dtype=torch.uint8)
            rest = memoryview(memory.numpy())
            file.seek(begin)
            while rest:
                rest = rest[file.readinto(rest):]
            return memory
        return _views(what, piece)


def from_map(what):
    """What the safetensors package does: maps the file privately, and shares its page cache."""
    with open(what["safetensors"], "rb") as file:
        size = file.seek(0, 2)
    memory = torch.from_file(what["safetensors"], shared=False, size=size, dtype=torch.uint8)
    return _views(what, lambda begin, length: memory[begin:begin + length])


def from_store(what):
    import bellows.models
    return bellows.models.open(what["store"]).tensors()


LOADS = {"torch_load": from_torch_load, "read": from_read, "map": from_map, "store": from_store}


def assign(module, state):
    """What load_state_dict(assign=True) does in newer versions of torch."""
    for name, tensor in state.items():
        prefix, _, own = name.rpartition(".")
        owner = module.get_submodule(prefix)
        if own in owner._parameters:
            owner._parameters[own] = torch.nn.Parameter(tensor, requires_grad=False)
        else:
            owner._buffers[own] = tensor


def filled(what, how):
    module = networks.network(what["network"], what["size"], "meta")
    if how == "store":
        import bellows.models
        with bellows.models.open(what["store"]) as model:
            model.load_into(module)
    else:
        assign(module, LOADS[how](what))
    return module


def output(module, what):
    with torch.no_grad():
        return module(networks.question(what["network"]))


def make(what):
    from bellows.models.files import write_file
    torch.manual_seed(1)
    state = networks.made_up(networks.network(what["network"], what["size"], "meta"))
    torch.save(state, what["pt"])
    types = {torch.float32: "F32", torch.int64: "I64"}
    write_file(what["safetensors"], [(name, types[t.dtype], tuple(t.shape), t.numpy())
                                     for name, t in state.items()], {})


def ask(what, how):
    begin = time.monotonic()
    module = filled(what, how)
    output(module, what)
    first = time.monotonic()
    if how != "store":
        return (first - begin,)
    output(module, what)
    return first - begin, time.monotonic() - first


def load(what, how):
    begin = time.monotonic()
    tensors = LOADS[how](what)
    end = time.monotonic()
    del tensors
    return (end - begin,)


def rate(what, how, seconds):
    begin = time.monotonic()
    count = 0
    while time.monotonic() - begin < float(seconds):
        output(filled(what, how), what)
        count += 1
    return (count / (time.monotonic() - begin),)


if __name__ == "__main__":
    mode, given = sys.argv[1], json.loads(sys.argv[2])
    if mode == "make":
        make(given)
    elif mode == "once":
        output(filled(given, sys.argv[3]), given)
        print("output", flush=True)
    else:
        for line in sys.stdin:
            name, *arguments = line.split()
            print(*{"ask": ask, "load": load, "rate": rate}[name](given, *arguments), flush=True)
