#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the CPU on which a new mount namespace gets the lowest number.

A namespace can be pinned only from one with a lower number. Linux 6.18 hands the numbers out in
batches for each CPU, so that a member's own namespace must come from the lowest batch to be lower
than those that its jobs get later. Prints nothing where the kernel can't tell a number: there one
counter serves all.
"""
import fcntl
import os
import struct

NS_GET_MNTNS_ID = 0x8008B705
CLONE_NEWNS = 0x20000


def number_on(cpu):
    """In a child, since nobody can go back."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.sched_setaffinity(0, {cpu})
            import ctypes
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) == 0:
                with open("/proc/self/ns/mnt", "rb") as ns:
                    os.write(write_end, fcntl.ioctl(ns, NS_GET_MNTNS_ID, bytes(8)))
        finally:
            os._exit(0)
    os.close(write_end)
    number = os.read(read_end, 8)
    os.close(read_end)
    os.wait()
    return struct.unpack("Q", number)[0] if len(number) == 8 else None


if __name__ == "__main__":
    numbers = {cpu: number_on(cpu) for cpu in os.sched_getaffinity(0)}
    if None not in numbers.values():
        print(min(numbers, key=numbers.get))
