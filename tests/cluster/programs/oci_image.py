#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes an image in OCI's form out of directories, one a layer: oci_image.py [--env NAME=VALUE] [--workdir DIR]
[--random BYTES] LAYOUT DIRECTORY..."""
import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path


def blob(layout, data):
    digest = hashlib.sha256(data).hexdigest()
    path = layout / "blobs/sha256"
    path.mkdir(parents=True, exist_ok=True)
    (path / digest).write_bytes(data)
    return {"digest": "sha256:" + digest, "size": len(data)}


def tar_of(directory, random):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(directory, arcname=".")
        if random:
            info = tarfile.TarInfo("random")
            info.size = random
            tar.addfile(info, io.BytesIO(os.urandom(random)))
    return data.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--workdir", default="")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("layout", type=Path)
    parser.add_argument("directory", nargs="+")
    args = parser.parse_args()
    layers, diff_ids = [], []
    for directory in args.directory:
        tar = tar_of(directory, args.random)
        diff_ids.append("sha256:" + hashlib.sha256(tar).hexdigest())
        layers.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                       **blob(args.layout, gzip.compress(tar, 1, mtime=0))})
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": args.env, "WorkingDir": args.workdir},
              "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": layers,
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                           **blob(args.layout, json.dumps(config).encode())}}
    index = {"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json",
                                                **blob(args.layout, json.dumps(manifest).encode())}]}
    (args.layout / "index.json").write_text(json.dumps(index))
    (args.layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


main()
