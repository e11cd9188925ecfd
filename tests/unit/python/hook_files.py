# SPDX-License-Identifier: Apache-2.0
"""The files of hook_program.py: hook_files.py FOLDER"""

import os
import struct
import sys

from bellows.models.files import write_file

FLOATS = struct.pack("<6f", *range(6))
INDEX = """{"weight_map":{"x":"model-00001-of-00002.safetensors",
"y":"model-00002-of-00002.safetensors"}}"""


def write_all(folder):
    def write(name, tensors, metadata=None):
        write_file(os.path.join(folder, name), tensors, metadata or {})

    write(
        "a.safetensors",
        [
            ("b", "I64", (2,), struct.pack("<2q", 7, 8)),
            ("one", "F64", (), struct.pack("<d", 0.5)),
            ("w", "F32", (2, 3), FLOATS),
        ],
        {"format": "pt"},
    )
    write("half.safetensors", [("h", "BF16", (2,), b"\x80\x3f\x00\x40")])
    write(
        "eight.safetensors",
        [
            ("q", "F8_E5M2", (4,), b"\x3c" * 4),
            ("weight", "F32", (2, 3), FLOATS),
            ("bias", "F32", (2,), struct.pack("<2f", 1, 1)),
        ],
    )
    os.mkdir(os.path.join(folder, "parts"))
    write("parts/model-00001-of-00002.safetensors", [("x", "F32", (6,), FLOATS)])
    write("parts/model-00002-of-00002.safetensors", [("y", "F32", (2, 3), FLOATS)])
    with open(os.path.join(folder, "parts/model.safetensors.index.json"), "w", encoding="ascii") as file:
        file.write(INDEX)


if __name__ == "__main__":
    write_all(sys.argv[1])
