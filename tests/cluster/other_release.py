#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a plugin say that it was built for another Slurm: other_release.py PLUGIN MAJOR MINOR MICRO

The numbers are added to those of the Slurm that it was built for, as its headers would have written them.
Prints the outcome, such as 22.05.9.
"""
import re
import subprocess
import sys


def place_of(plugin, name):
    """Where in the file an exported variable is."""
    def said(*options):
        return subprocess.run(["readelf", "--wide", *options, plugin], check=True, capture_output=True,
                              text=True).stdout

    address = int(re.search(rf"^ *\d+: ([0-9a-f]+) .* {name}$", said("--dyn-syms"), re.M).group(1), 16)
    for offset, begin, size in re.findall(r"^ *LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", said("--segments"), re.M):
        if int(begin, 16) <= address < int(begin, 16) + int(size, 16):
            return int(offset, 16) + address - int(begin, 16)
    sys.exit(f"{plugin} has no {name}")


def main():
    plugin, more = sys.argv[1], [int(word) for word in sys.argv[2:]]
    with open(plugin, "r+b") as file:
        file.seek(place_of(plugin, "plugin_version"))
        number = int.from_bytes(file.read(4), "little")
        version = [(number >> shift & 255) + add for shift, add in zip((16, 8, 0), more)]
        file.seek(-4, 1)
        file.write((version[0] << 16 | version[1] << 8 | version[2]).to_bytes(4, "little"))
    print("{}.{:02}.{}".format(*version))


main()
