#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""controller_call.py SOCKET UID ACTION [ARGUMENT]: calls bellowsd as anybody could who has munge.

Prints the HTTP status of each answer. ACTION is one of
  report JSON   a sealed report          twice JSON   the same credential two times
  plan JSON     a report's body, sealed for the report's path but sent to the plan's
  raw TEXT      what no munged has sealed
  many JSON     a thousand reports at once; prints how many got each status
  slow FILE     two hundred connections that send a byte now and then; makes FILE once all are open, and prints how
                many bellowsd has ended within half a minute
"""

import collections
import concurrent.futures
import http.client
import pathlib
import select
import socket
import subprocess
import sys
import time

SOCKET, UID, ACTION = sys.argv[1:4]
ARGUMENT = sys.argv[4] if len(sys.argv) > 4 else ""


def sealed(body: str) -> str:
    text = f"/v1/report\n{'0' * 32}\n{body}"
    command = ["munge", f"--socket={SOCKET}", f"--restrict-uid={UID}", f"--string={text}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def post(path: str, body: str) -> int:
    connection = http.client.HTTPConnection("ctl", 6830, timeout=30)
    connection.request("POST", path, body, {"Content-Type": "text/plain"})
    return connection.getresponse().status


def call(credential: str) -> int:
    try:
        return post("/v1/report", credential)
    except OSError as error:
        return -(error.errno or 1)


def slow(ready: str) -> int:
    poll = select.poll()
    connections = {}
    for _ in range(200):
        connection = socket.create_connection(("ctl", 6830), timeout=30)
        connection.sendall(b"POST /v1/report HTTP/1.1\r\nX: ")
        connections[connection.fileno()] = connection
        poll.register(connection, select.POLLIN | select.POLLHUP)
    pathlib.Path(ready).touch()
    deadline = time.monotonic() + 30
    while connections and time.monotonic() < deadline:
        for number, _ in poll.poll(500):
            poll.unregister(number)
            connections.pop(number).close()
        for connection in connections.values():
            connection.send(b"x", socket.MSG_NOSIGNAL)
    return 200 - len(connections)


if ACTION == "report":
    print(post("/v1/report", sealed(ARGUMENT)))
elif ACTION == "twice":
    credential = sealed(ARGUMENT)
    print(post("/v1/report", credential), post("/v1/report", credential))
elif ACTION == "plan":
    print(post("/v1/plan", sealed(ARGUMENT)))
elif ACTION == "raw":
    print(post("/v1/report", ARGUMENT))
elif ACTION == "slow":
    print(slow(ARGUMENT))
elif ACTION == "many":
    credentials = [sealed(ARGUMENT) for _ in range(1000)]
    with concurrent.futures.ThreadPoolExecutor(1000) as pool:
        counts = collections.Counter(pool.map(call, credentials))
    print(" ".join(f"{status}:{count}" for status, count in sorted(counts.items())))
else:
    sys.exit(f"unknown action {ACTION}")
