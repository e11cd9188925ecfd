#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a node's bellows-modeld on its own socket: control.py evict|pin|unpin TENANT MODEL"""
import socket
import struct
import sys

OPS = {"pin": 5, "unpin": 6, "evict": 7}


def main():
    op, tenant, name = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.settimeout(20)
        control.connect("/run/bellows-models/control")
        control.send(struct.pack("=8I64s256s1024s1024s", 1, OPS[op], 0, len(tenant), len(name), 0, 0, 0,
                                 tenant, name, b"", b""))
        _, failure, length, _, text = struct.unpack("=IiII512s", control.recv(528))
    print(text[:length].decode() or "done")
    return 0 if failure == 0 else 1


sys.exit(main())
