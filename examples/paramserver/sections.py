# SPDX-License-Identifier: Apache-2.0
"""What the packages of Debian are and in which sections they are, as apt knows it."""

import re
import subprocess
import zlib

WORDS = 4096  #: that are told apart


def packages():
    """(description, section) of each package, in the order of names."""
    said = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout
    found = {}
    for paragraph in said.decode(errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Description|Section): (.*)$", paragraph, re.M))
        if len(fields) == 3:
            section = fields["Section"].rpartition("/")[2]
            found[fields["Package"]] = (fields["Description"], section)
    return [found[name] for name in sorted(found)]


def words(description):
    """Numbers of the words and of their pairs, the same in every process. At least one."""
    text = ["", *re.findall(r"[a-z0-9+#]+", description.lower())]
    pairs = [f"{a} {b}" for a, b in zip(text, text[1:])]
    return [zlib.crc32(word.encode()) % WORDS for word in text + pairs]
