#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file system whose server dies: dead_server.py MOUNT-POINT ALIVE DEVICE

By FUSE (DEVICE): one empty directory. Answers while the file ALIVE is there, and then reads no more: what
waits for an answer from then on ends by a deadly signal alone, as with a file server that is gone.
"""
import ctypes
import os
import signal
import struct
import sys

GETATTR, STATFS, INIT, ACCESS = 3, 17, 26, 34
UNANSWERED = 2, 36, 42  # forget, interrupt and many to forget
ATTRIBUTES = struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 512, 0)
ANSWERS = {
    INIT: struct.pack("<4I2H2I2H", 7, 31, 65536, 0, 1, 1, 65536, 1, 1, 0) + bytes(32),
    GETATTR: ATTRIBUTES,
    STATFS: bytes(80),
    ACCESS: b"",
}


def main():
    target, alive, device = sys.argv[1:]
    fuse = os.open(device, os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"dead", target.encode(), b"fuse", 0, options.encode()) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    while os.path.exists(alive):
        _, operation, unique = struct.unpack_from("<IIQ", os.read(fuse, 1 << 20))
        if operation in UNANSWERED:
            continue
        body = ANSWERS.get(operation, b"")
        error = 0 if operation in ANSWERS else -38  # ENOSYS
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    signal.pause()


main()
