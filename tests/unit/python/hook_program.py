# SPDX-License-Identifier: Apache-2.0
"""A program that knows nothing of Bellows: what it prints is to be the same with the hook and without.

hook_program.py FOLDER: of a.safetensors, half.safetensors and two parts of a model.
"""

import os
import sys
import threading
import warnings

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file

warnings.simplefilter("error", UserWarning)
folder = sys.argv[1]
a = os.path.join(folder, "a.safetensors")


def show(name, tensors):
    for key in tensors:
        value = tensors[key]
        kind = (type(value).__name__, value.dtype, tuple(value.shape))
        print(name, key, *kind, value.reshape(-1)[:3].tolist(), flush=True)


# A program may do what it likes with what it loaded, and the next load has the file's bytes again.
state = load_file(a)
show("torch", state)
print(all(tensor.is_contiguous() and not tensor.requires_grad for tensor in state.values()))
for tensor in state.values():
    tensor.zero_()
show("zeroed", state)
show("again", load_file(a))
arrays = load_arrays(a)
show("numpy", arrays)
print(all(array.flags.writeable for array in arrays.values() if array.size))
arrays["w"][:] = 5
show("written", arrays)
show("again", load_arrays(a))

with safe_open(a, framework="pt") as file:
    print(sorted(file.keys()), file.metadata(), isinstance(file, safe_open))
    if hasattr(file, "offset_keys"):
        print(file.offset_keys())
    part = file.get_slice("w")
    print(part.get_shape(), part.get_dtype(), part[1:].tolist(), part[:, 1].tolist())
    print(part[:, 1:].is_contiguous(), part[:].tolist())
    for wrong in ("no such", ""):
        try:
            file.get_tensor(wrong)
        except SafetensorError as error:
            print("SafetensorError", error)
with safe_open(a, framework="np") as file:
    first = file.get_tensor("w")
    first += 1
    print(first.tolist(), file.get_tensor("w").tolist(), file.get_slice("w")[0:1].tolist())

for absent in (os.path.join(folder, "absent"), folder):
    try:
        load_file(absent)
    except Exception as error:
        print(type(error).__name__)
show("half", load_file(os.path.join(folder, "half.safetensors")))

whole = {}
for number in (1, 2):
    whole.update(load_file(os.path.join(folder, f"parts/model-0000{number}-of-00002.safetensors")))
show("parts", whole)

# An optimizer writes to it, in threads too, and forked processes have their own.
parameter = torch.nn.Parameter(load_file(a)["w"])
optimizer = torch.optim.SGD([parameter], lr=0.5)
(parameter * 2).sum().backward()
optimizer.step()
print(parameter.tolist())
results = []


def work():
    results.append(load_file(a)["w"].add_(1).sum().item())


threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(results)
kept = load_file(a)["w"]
child = os.fork()
if child == 0:
    kept += 100
    os._exit(0 if kept.sum() == 615 and load_file(a)["w"].sum() == 15 else 1)
print(os.waitpid(child, 0)[1], kept.tolist())
print(numpy.asarray(kept).sum())
