# SPDX-License-Identifier: Apache-2.0
"""When Slurm's daemons logged something."""
import datetime
import glob
import re

STAMP = re.compile(r"\[(\d{4}-\S+)\] (.*)")


def logged(pattern, words):
    """Seconds since 1970, in order, to the millisecond, of the lines in these files where `words` are found."""
    found = []
    for path in glob.glob(pattern):
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = (STAMP.match(line) for line in stream)
            found += [datetime.datetime.fromisoformat(line[1]).timestamp()
                      for line in lines if line and re.search(words, line[2])]
    return sorted(found)
