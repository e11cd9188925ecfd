# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU: what a save costs training, and how long a restore takes, the files in the page cache."""
import shutil
import tempfile

import checkpoint
import rows


def run(options):
    scratch = tempfile.mkdtemp(prefix="bench-", dir=options.builddir)
    try:
        pairs = checkpoint.measured("gpu_bench", options, scratch)
    except checkpoint.Skipped as why:
        return [rows.left_out("gpu", why)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return [
        checkpoint.against(pairs, "gpu_stall", "gpu.stall_vs_memcpy", "lower", None, "cudaMemcpy to pinned memory, s"),
        checkpoint.against(pairs, "gpu_restore", "gpu.restore_vs_memcpy", "lower", None,
                           "cudaMemcpy from pinned memory, s"),
    ]
