# SPDX-License-Identifier: Apache-2.0
"""What the packages of Debian are, in which sections, and whose, as apt knows it."""

import re
import subprocess
import zlib
from typing import NamedTuple

WORDS = 4096  #: that are told apart, with 0 for none
LENGTH = 16  #: words of a description that count


class Package(NamedTuple):
    description: str
    section: str
    maintainer: str


def packages():
    """In the order of names."""
    said = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout
    found = {}
    pattern = re.compile(r"^(Package|Description|Section|Maintainer): (.*)$", re.M)
    for paragraph in said.decode(errors="replace").split("\n\n"):
        fields = dict(pattern.findall(paragraph))
        if len(fields) == 4:
            section = fields["Section"].rpartition("/")[2]
            found[fields["Package"]] = Package(fields["Description"], section, fields["Maintainer"])
    return [found[name] for name in sorted(found)]


def words(description):
    """Numbers of its first words, the same in every process, and 0 where there are no more."""
    text = re.findall(r"[a-z0-9+#]+", description.lower())[:LENGTH]
    numbers = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in text]
    return numbers + [0] * (LENGTH - len(numbers))
