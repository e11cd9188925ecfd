# SPDX-License-Identifier: Apache-2.0
from safetensors import safe_open


def load_file(filename, device="cpu"):
    with safe_open(filename, framework="pt", device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}
