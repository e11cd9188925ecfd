# SPDX-License-Identifier: Apache-2.0
"""TLS with the key of a pool: without it Dask would run the code of anybody who reaches its ports."""

import os

from distributed.security import Security


def of_pool(directory):
    key, certificate = (os.path.join(directory, name) for name in ("key.pem", "cert.pem"))
    files = {"tls_ca_file": certificate}
    for role in ("client", "scheduler", "worker"):
        files.update({f"tls_{role}_key": key, f"tls_{role}_cert": certificate})
    return Security(require_encryption=True, **files)
