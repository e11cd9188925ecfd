# SPDX-License-Identifier: Apache-2.0
"""The JSON gateway of a pool's etcd, over TLS with the pool's key.

Why not a library: python3-etcd3 was last released in 2020, and python3-etcd3gw ignores its own time
limit. Both know one server only, neither says whether a request that failed was sent, and
the watches of both end with their connection.
"""

import base64
import http.client
import json
import os
import socket
import ssl
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .errors import FullError, HistoryLost, InvalidError, MayHaveRun, PoolError, Unavailable

ATTEMPT = 2.0  # seconds until another server is asked
_PAUSE = 0.05
_MOST = 4 << 20  # bytes of an answer
_INVALID, _NOT_FOUND, _FULL, _OUT_OF_RANGE, _UNIMPLEMENTED = 3, 5, 8, 11, 12


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode(text: str) -> bytes:
    return base64.b64decode(text)


class _Connection(http.client.HTTPConnection):
    """One that certificates of the pool are enough for, at whatever address."""

    def __init__(self, address: str, context: ssl.SSLContext):
        host, _, port = address.rpartition(":")
        super().__init__(host.strip("[]"), int(port))
        self.context = context

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = self.context.wrap_socket(plain, server_hostname="bellows-pool")
        except BaseException:
            plain.close()
            raise


class Deadline:
    """A point in time; `left()` are the seconds until then, None without one."""

    def __init__(self, seconds: Optional[float]):
        self.at = None if seconds is None else time.monotonic() + seconds

    def left(self) -> Optional[float]:
        return None if self.at is None else self.at - time.monotonic()

    def passed(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def least(self, seconds: float) -> float:
        """So many seconds, or fewer if the deadline is nearer; positive."""
        left = self.left()
        return seconds if left is None else max(0.001, min(seconds, left))


class NotSent(Exception):
    """The request did not leave this process."""


class Lost(Exception):
    """The request was sent, or part of it, and no answer of use came."""


class Gateway:
    """The servers that shared.json in the pool's directory names. Threads may share it."""

    def __init__(self, pool: str):
        self._pool = pool
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        certificate = os.path.join(pool, "cert.pem")
        try:
            self._context.load_verify_locations(certificate)
            self._context.load_cert_chain(certificate, os.path.join(pool, "key.pem"))
        except (OSError, ssl.SSLError) as error:
            raise Unavailable(f"{pool} is no pool that this user may use: {error}") from error
        self._lock = threading.Lock()
        self._free: List[Tuple[str, _Connection]] = []
        self._endpoints: List[str] = []
        self._first = 0

    def endpoint(self) -> str:
        """The server to ask now: the last that answered. Raises NotSent."""
        with self._lock:
            if not self._endpoints:
                self._read_endpoints()
            return self._endpoints[self._first % len(self._endpoints)]

    def _read_endpoints(self) -> None:
        path = os.path.join(self._pool, "shared.json")
        try:
            with open(path, encoding="utf-8") as file:
                endpoints = json.load(file)["endpoints"]
            if not endpoints or not all(isinstance(e, str) and ":" in e for e in endpoints):
                raise ValueError("it names no servers")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NotSent(f"{path}: {error}") from error
        # So that not all clients ask the first.
        self._first = os.getpid() % len(endpoints)
        self._endpoints = endpoints

    def _avoid(self, endpoint: str) -> None:
        """Asks another server next; after a round, reads anew who they are."""
        with self._lock:
            for address, connection in self._free:
                if address == endpoint:
                    connection.close()
            self._free = [pair for pair in self._free if pair[0] != endpoint]
            count = len(self._endpoints)
            if not count or self._endpoints[self._first % count] != endpoint:
                return
            self._first += 1
            if self._first % count == os.getpid() % count:
                self._endpoints = []

    def _connection(self, endpoint: str, timeout: float) -> _Connection:
        with self._lock:
            for index, (address, connection) in enumerate(self._free):
                if address == endpoint:
                    del self._free[index]
                    connection.sock.settimeout(timeout)
                    return connection
        connection = _Connection(endpoint, self._context)
        connection.timeout = timeout
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            self._avoid(endpoint)
            raise NotSent(f"{endpoint}: {error}") from error
        connection.sock.settimeout(timeout)
        return connection

    def _send(self, path: str, body: Any, timeout: float) -> Tuple[str, _Connection, Any]:
        endpoint = self.endpoint()
        connection = self._connection(endpoint, timeout)
        try:
            connection.request("POST", path, json.dumps(body).encode())
            return endpoint, connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._avoid(endpoint)
            raise Lost(f"{endpoint}: {error or type(error).__name__}") from error

    def ask_once(self, path: str, body: Any, timeout: float) -> Dict[str, Any]:
        """One request to one server. Raises NotSent, Lost, or what the server refuses as."""
        endpoint, connection, response = self._send(path, body, timeout)
        try:
            data = response.read(_MOST)
            answer = json.loads(data)
            if not isinstance(answer, dict):
                raise ValueError("the answer is no object")
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            self._avoid(endpoint)
            raise Lost(f"{endpoint}: {error}") from error
        if response.status == 200:
            if connection.sock is not None:
                with self._lock:
                    self._free.append((endpoint, connection))
            return answer
        connection.close()
        refused = refusal(answer, endpoint)
        if refused:
            raise refused
        self._avoid(endpoint)
        raise Lost(f"{endpoint}: {answer.get('error')}")

    def ask(self, path: str, body: Any, deadline: Deadline) -> Dict[str, Any]:
        """A request that may be repeated without harm. Raises Unavailable."""
        while True:
            try:
                return self.ask_once(path, body, deadline.least(ATTEMPT))
            except (NotSent, Lost) as error:
                if deadline.passed():
                    raise Unavailable(f"the pool's etcd does not answer: {error}") from error
            time.sleep(deadline.least(_PAUSE))

    def settle(self, path: str, body: Any, deadline: Deadline) -> Tuple[Dict[str, Any], bool]:
        """A request that is repeated until there is an answer, and whether one before it was lost.

        Raises Unavailable if it was never sent, and MayHaveRun."""
        lost: Optional[Exception] = None
        while True:
            try:
                return self.ask_once(path, body, deadline.least(ATTEMPT)), lost is not None
            except NotSent as error:
                if deadline.passed() and not lost:
                    raise Unavailable(f"the pool's etcd can't be reached: {error}") from error
            except Lost as error:
                lost = error
            except PoolError as error:
                if not lost:
                    raise
                raise MayHaveRun(f"an answer was lost ({lost}), and then: {error}") from error
            if deadline.passed():
                raise MayHaveRun(f"the pool's etcd gives no answer: {lost}") from lost
            time.sleep(deadline.least(_PAUSE))

    def stream(self, path: str, body: Any, quiet: float) -> Iterator[Dict[str, Any]]:
        """The answers to one request, until it is quiet for so many seconds.

        Raises NotSent, Lost."""
        endpoint, connection, response = self._send(path, body, quiet)
        try:
            while True:
                line = response.readline(_MOST)
                if not line:
                    raise Lost(f"{endpoint}: the watch has ended")
                answer = json.loads(line)
                if "result" not in answer:
                    raise refusal(answer, endpoint) or Lost(f"{endpoint}: {answer.get('error')}")
                yield answer["result"]
        except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
            self._avoid(endpoint)
            raise Lost(f"{endpoint}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            for _, connection in self._free:
                connection.close()
            self._free = []


def refusal(answer: Dict[str, Any], endpoint: str) -> Optional[PoolError]:
    """The exception for an answer by which something certainly was not done."""
    error = answer.get("error")
    if isinstance(error, dict):  # of a stream
        code, text = error.get("grpc_code"), error.get("message")
    else:
        code, text = answer.get("code"), error
    said = f"etcd at {endpoint}: {text}"
    if code == _FULL and "too many requests" not in str(text):
        return FullError(said)
    if code == _OUT_OF_RANGE:
        return HistoryLost(said)
    if code in (_INVALID, _NOT_FOUND, _UNIMPLEMENTED):
        return InvalidError(said)
    return None
