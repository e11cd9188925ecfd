# SPDX-License-Identifier: Apache-2.0
from safetensors import safe_open


def load_file(filename):
    with safe_open(filename, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}
