# SPDX-License-Identifier: Apache-2.0
"""When Slurm's daemons logged something."""
import datetime
import glob
import re

STAMP = re.compile(r"\[(\d{4}-\S+)\] (.*)")


def lines(pattern, words):
    """(seconds since 1970 to the millisecond, match), in order, of the lines in these files where
    `words` are found."""
    found = []
    for path in glob.glob(pattern):
        with open(path, encoding="utf-8", errors="replace") as stream:
            for line in filter(None, map(STAMP.match, stream)):
                if match := re.search(words, line[2]):
                    found.append((datetime.datetime.fromisoformat(line[1]).timestamp(), match))
    return sorted(found, key=lambda line: line[0])


def logged(pattern, words):
    """The times alone."""
    return [moment for moment, _ in lines(pattern, words)]
