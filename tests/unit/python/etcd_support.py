# SPDX-License-Identifier: Apache-2.0
"""A real etcd of three servers with the key of a pool, all on this machine."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ETCD = shutil.which("etcd")
NO_ETCD = None if ETCD and shutil.which("openssl") else "etcd-server or openssl is not installed"


def _ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def make_key(directory):
    """What `bellows pool create` makes: a key, and the certificate that it signed."""
    key, certificate = (os.path.join(directory, name) for name in ("key.pem", "cert.pem"))
    for command in (
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key],
        ["openssl", "req", "-x509", "-new", "-key", key, "-out", certificate, "-days", "9",
         "-subj", "/CN=bellows-pool", "-addext",
         "subjectAltName=DNS:bellows-pool,DNS:localhost,IP:127.0.0.1",
         "-addext", "extendedKeyUsage=serverAuth,clientAuth"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=30)


class Servers:
    """Three etcd servers whose directory is a pool's."""

    def __init__(self, directory, count=3):
        self.directory = directory
        make_key(directory)
        ports = _ports(2 * count)
        self.clients, self.peers = ports[:count], ports[count:]
        self.processes = [None] * count
        with open(os.path.join(directory, "shared.json"), "w", encoding="utf-8") as file:
            json.dump({"endpoints": [f"127.0.0.1:{port}" for port in self.clients]}, file)
        self.start()

    def start(self):
        """Starts all that don't run."""
        for index, process in enumerate(self.processes):
            if process is None or process.poll() is not None:
                self.start_one(index)

    def start_one(self, index):
        url = "https://127.0.0.1:{}".format
        key, certificate = (os.path.join(self.directory, n) for n in ("key.pem", "cert.pem"))
        command = [
            ETCD, "--name", f"m{index}", "--data-dir", os.path.join(self.directory, f"data{index}"),
            "--listen-client-urls", url(self.clients[index]),
            "--advertise-client-urls", url(self.clients[index]),
            "--listen-peer-urls", url(self.peers[index]),
            "--initial-advertise-peer-urls", url(self.peers[index]),
            "--initial-cluster", ",".join(f"m{i}={url(p)}" for i, p in enumerate(self.peers)),
            "--initial-cluster-token", self.directory,
            "--cert-file", certificate, "--key-file", key, "--trusted-ca-file", certificate,
            "--client-cert-auth", "--peer-cert-file", certificate, "--peer-key-file", key,
            "--peer-trusted-ca-file", certificate, "--peer-client-cert-auth",
            "--experimental-peer-skip-client-san-verification",
        ]
        with open(os.path.join(self.directory, f"log{index}"), "ab") as log:
            self.processes[index] = subprocess.Popen(command, stdout=log, stderr=log)

    def leader(self, gateways):
        """The index of the leader, None if nobody knows one."""
        for gateway in gateways:
            try:
                status = gateway.ask_once("/v3/maintenance/status", {}, 1.0)
            except Exception:
                continue
            for index, one in enumerate(gateways):
                try:
                    own = one.ask_once("/v3/maintenance/status", {}, 1.0)
                except Exception:
                    continue
                if own["header"]["member_id"] == status.get("leader"):
                    return index
        return None

    def signal(self, index, number):
        self.processes[index].send_signal(number)

    def kill(self, index):
        self.processes[index].kill()
        self.processes[index].wait(timeout=30)

    def close(self):
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes:
            if process is not None:
                process.wait(timeout=30)

    def only(self, index):
        """A pool's directory that names this server alone."""
        directory = os.path.join(self.directory, f"only{index}")
        os.mkdir(directory)
        for name in ("key.pem", "cert.pem"):
            os.symlink(os.path.join(self.directory, name), os.path.join(directory, name))
        with open(os.path.join(directory, "shared.json"), "w", encoding="utf-8") as file:
            json.dump({"endpoints": [f"127.0.0.1:{self.clients[index]}"]}, file)
        return directory


def serve(add_cleanup):
    """Three servers in a directory of their own, until what add_cleanup is of ends."""
    directory = tempfile.mkdtemp(prefix="bellows-test-")
    add_cleanup(shutil.rmtree, directory)
    servers = Servers(directory)
    add_cleanup(servers.close)
    return servers


def eventually(holds, seconds=40):
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("it did not come about in time")
        time.sleep(0.02)
