#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In srun's place: passes the agents' lines on and kills somebody at one of them.

With $SLURM_STAND_IN it is the whole of srun too: it starts the agents of n1 and n2 and the ranks here.
Else the srun that $REAL_SRUN names does the work. The file "fault" in $SLURM_STAND_IN or $FAULT_DIR says
when and whom: MESSAGE before|after TARGET. MESSAGE is the name of a command or an event of the launcher's
protocol, from the gate on, or of its answers; the saves are those of the stop. TARGET is rank, launcher,
agent (of n1, which commits), other (the agent of n2), or nobody: the line is then held up. "before": it dies before the line gets where it
is to go.
"""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

STAND_IN = os.environ.get("SLURM_STAND_IN", "")
DIR = STAND_IN or os.environ["FAULT_DIR"]
OF_THE_STOP = {"shard", "commit", "committed", "committed_to_agents"}


def options_of(arguments):
    at = next(i for i, one in enumerate(arguments) if not one.startswith("-"))
    return dict(one.lstrip("-").partition("=")[::2] for one in arguments[:at]), arguments[at:]


def pids(comm, text, near):
    """Processes by name and arguments that are near: of this stand-in's job or of this step's node."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                environ = stream.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                command = stream.read().replace(b"\0", b" ").decode()
            with open(f"/proc/{pid}/comm", encoding="utf-8") as stream:
                name = stream.read().strip()
        except OSError:
            continue
        if near.encode() in environ and name == comm and re.search(text, command):
            found.append(int(pid))
    return sorted(found)


class Fault:
    def __init__(self):
        self.lock = threading.Lock()
        self.stopping = False

    def check(self, message, when):
        with self.lock:
            if message == "stop":
                self.stopping = True
            try:
                with open(DIR + "/fault", encoding="utf-8") as stream:
                    wanted = stream.read().split()
            except OSError:
                return
            if wanted[:2] != [message, when] or (message in OF_THE_STOP and not self.stopping):
                return
            os.rename(DIR + "/fault", DIR + "/fault.done")
        self.kill(wanted[2])

    def kill(self, target):
        if target == "nobody":
            # Longer than a launcher that ends waits for its agents: what they have not heard by then is lost.
            return time.sleep(6)
        job = "SLURM_STAND_IN=" + STAND_IN if STAND_IN else "SLURM_JOB_ID=" + os.environ["SLURM_JOB_ID"]
        if target == "launcher":
            return os.kill(os.getppid(), signal.SIGKILL)
        if target == "rank":
            victims = pids("counter", ".", job)
        else:
            victims = pids("bellows", "bellows agent", job)
            if STAND_IN:
                node = "SLURMD_NODENAME=" + ("n1" if target == "agent" else "n2")
                victims = [pid for pid in victims if pid in pids("bellows", "bellows agent", node)]
        with open(DIR + "/victims", "a", encoding="utf-8") as log:
            log.write(f"{target} {victims}\n")
        if victims:
            os.kill(victims[-1], signal.SIGKILL)


fault = Fault()


def name_of(line, key):
    try:
        name = json.loads(line).get(key, "")
    except ValueError:
        return ""
    return name + "_to_agents" if key == "cmd" and name == "committed" else name


def relay(source, sinks, key):
    for line in source:
        name = name_of(line, key)
        fault.check(name, "before")
        for sink in sinks:
            try:
                sink.write(line)
                sink.flush()
            except OSError:
                pass
        fault.check(name, "after")


def pass_lines(agents):
    """Until the last agent has ended; the end of the launcher's lines goes to all of them."""
    def to_agents():
        relay(sys.stdin.buffer, [a.stdin for a in agents], "cmd")
        for agent in agents:
            try:
                agent.stdin.close()
            except OSError:
                pass

    threading.Thread(target=to_agents, daemon=True).start()
    readers = [threading.Thread(target=relay, args=(a.stdout, [sys.stdout.buffer], "event")) for a in agents]
    for reader in readers:
        reader.start()
    return readers


def end_all(processes, names):
    """As --kill-on-bad-exit: the first that ends badly takes the others along."""
    status = 0
    nodes = {process.pid: name for process, name in zip(processes, names)}
    left = list(processes)
    while left:
        pid, code = os.wait()
        for process in [p for p in left if p.pid == pid]:
            left.remove(process)
            code = os.waitstatus_to_exitcode(code)
            status = max(status, 128 - code if code < 0 else code)
            if code != 0:
                how = signal.strsignal(-code) if code < 0 else f"Exited with exit code {code}"
                print(f"srun: error: {nodes[pid]}: task 0: {how}", file=sys.stderr, flush=True)
            for other in left if code != 0 else []:
                os.kill(other.pid, signal.SIGKILL)
    return status


def stand_in(options, command):
    nodes = options["nodelist"].split(",")
    processes = []
    agents = "--job" in command

    def end(*_):
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        os._exit(143)

    signal.signal(signal.SIGTERM, end)
    for rank, node in enumerate(nodes):
        environ = dict(os.environ, SLURMD_NODENAME=node)
        place = (lambda path: path) if node == "n1" else (lambda path: path.replace("/agent.sock", "/2/agent.sock"))
        if agents:
            run = [place(one) for one in command]
            processes.append(subprocess.Popen(run, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        else:
            environ.update(SLURM_PROCID=str(rank), SLURM_NTASKS=str(len(nodes)), SLURM_LOCALID="0",
                           BELLOWS_SOCKET=place(environ["BELLOWS_SOCKET"]))
            processes.append(subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL))
    readers = pass_lines(processes) if agents else []
    status = end_all(processes, nodes)
    for reader in readers:
        reader.join()
    return status


def main():
    options, command = options_of(sys.argv[1:])
    if STAND_IN:
        os._exit(stand_in(options, command))
    real = os.environ["REAL_SRUN"]
    if "agent" not in options.get("job-name", ""):
        os.execv(real, ["srun"] + sys.argv[1:])
    process = subprocess.Popen([real] + sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    readers = pass_lines([process])
    status = process.wait()
    for reader in readers:
        reader.join()
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
