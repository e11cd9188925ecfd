#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Becomes a command in a mount namespace of its own that is older than all that come later.

A namespace can be pinned only from one with a lower number, as a job's from its node's. Linux 6.18
hands the numbers out in batches for each CPU, so that a later one has a lower number when it is made
on another CPU. Where the kernel can't tell a number, one counter serves all.
"""
import ctypes
import fcntl
import os
import struct
import sys

NS_GET_MNTNS_ID = 0x8008B705
CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
TRIES = 100

libc = ctypes.CDLL(None, use_errno=True)


def own_number():
    with open("/proc/self/ns/mnt", "rb") as ns:
        return struct.unpack("Q", fcntl.ioctl(ns, NS_GET_MNTNS_ID, bytes(8)))[0]


def check(status, what):
    if status != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def enter_new():
    check(libc.unshare(CLONE_NEWNS), "unshare")


def next_number(cpu):
    """In a child, since nobody can go back."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            os.sched_setaffinity(0, {cpu})
            enter_new()
            os.write(write_end, struct.pack("Q", own_number()))
        finally:
            os._exit(0)
    os.close(write_end)
    number = os.read(read_end, 8)
    os.close(read_end)
    os.wait()
    return struct.unpack("Q", number)[0]


def enter_oldest():
    """What is older by now than the next one of each CPU stays so, since all go up. A CPU may have come
    to the end of its batch between the look and the choice: hence the second look."""
    cpus = os.sched_getaffinity(0)
    for _ in range(TRIES):
        os.sched_setaffinity(0, {min(cpus, key=next_number)})
        enter_new()
        os.sched_setaffinity(0, cpus)
        if own_number() < min(map(next_number, cpus)):
            return
    sys.exit("no mount namespace is older than those of all CPUs")


def main():
    # A node's tasks may run on all.
    os.sched_setaffinity(0, range(1024))
    try:
        own_number()
    except OSError:
        enter_new()
    else:
        enter_oldest()
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
