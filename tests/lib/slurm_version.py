# SPDX-License-Identifier: Apache-2.0
"""The release of the Slurm that is installed here, such as (22, 5)."""
import functools
import re
import subprocess


@functools.lru_cache(maxsize=None)
def slurm_version():
    said = subprocess.run(["slurmctld", "-V"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, re.search(r"(\d+)\.(\d+)", said).groups()))
