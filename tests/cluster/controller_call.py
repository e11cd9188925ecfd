#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""controller_call.py SOCKET UID ACTION [ARGUMENT]: calls bellowsd as anybody could who has munge.

Prints the HTTP status of each answer. ACTION is one of
  report JSON   a sealed report          twice JSON   the same credential two times
  plan JSON     a report's body, sealed for the report's path but sent to the plan's
  raw TEXT      what no munged has sealed
  many JSON     a thousand reports at once; prints how many got each status
"""

import collections
import concurrent.futures
import http.client
import subprocess
import sys

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


if ACTION == "report":
    print(post("/v1/report", sealed(ARGUMENT)))
elif ACTION == "twice":
    credential = sealed(ARGUMENT)
    print(post("/v1/report", credential), post("/v1/report", credential))
elif ACTION == "plan":
    print(post("/v1/plan", sealed(ARGUMENT)))
elif ACTION == "raw":
    print(post("/v1/report", ARGUMENT))
elif ACTION == "many":
    credentials = [sealed(ARGUMENT) for _ in range(1000)]
    with concurrent.futures.ThreadPoolExecutor(1000) as pool:
        counts = collections.Counter(pool.map(call, credentials))
    print(" ".join(f"{status}:{count}" for status, count in sorted(counts.items())))
else:
    sys.exit(f"unknown action {ACTION}")
