# SPDX-License-Identifier: Apache-2.0
"""Where a pool is, and the key that admits to it."""

import json
import os
from typing import Optional, Tuple

import grpc

from .errors import Unavailable
from .wire import LARGEST

#: The certificate of every process in a pool is for this name: what counts is the key that signed it.
_NAME = "bellows-pool"

_COMMON = (
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.http2.max_pings_without_data", 0),
)


def directory_of(pool: str) -> str:
    """The directory of a pool. A name with a slash is one; others are in $BELLOWS_POOLS, by default
    ~/.bellows/pools."""
    if "/" in pool:
        return pool
    return os.path.join(os.environ.get("BELLOWS_POOLS") or os.path.expanduser("~/.bellows/pools"), pool)


def own_directory() -> str:
    """The directory of the pool whose member this process is."""
    directory = os.environ.get("BELLOWS_POOL")
    if not directory:
        raise Unavailable("this program is no member of a pool: there is no $BELLOWS_POOL")
    return directory


def _pair(directory: str) -> Tuple[bytes, bytes]:
    try:
        with open(os.path.join(directory, "key.pem"), "rb") as key:
            with open(os.path.join(directory, "cert.pem"), "rb") as certificate:
                return key.read(), certificate.read()
    except OSError as error:
        raise Unavailable(f"no key of a pool can be read: {error}") from error


def server_credentials(directory: str) -> grpc.ServerCredentials:
    """Both sides show the certificate and ask for it."""
    key, certificate = _pair(directory)
    return grpc.ssl_server_credentials([(key, certificate)], certificate, True)


def channel_credentials(directory: str) -> grpc.ChannelCredentials:
    key, certificate = _pair(directory)
    return grpc.ssl_channel_credentials(certificate, key, certificate)


def open_channel(address: str, credentials: grpc.ChannelCredentials) -> grpc.Channel:
    """A channel to a process of the pool, which never sends a call twice by itself."""
    options = _COMMON + (
        ("grpc.ssl_target_name_override", _NAME),
        ("grpc.enable_retries", 0),
        # A node that is gone says nothing.
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Else channels to one address share a connection, whatever their keys.
        ("grpc.use_local_subchannel_pool", 1),
    )
    return grpc.secure_channel(address, credentials, options)


SERVER_OPTIONS = _COMMON + (
    # A second process at the port would take calls that are not its own.
    ("grpc.so_reuseport", 0),
    # Callers' keepalive, which the default takes for abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)


def keeper_address(directory: str) -> Optional[str]:
    """Where the keeper is now; None: it has not said so."""
    try:
        with open(os.path.join(directory, "keeper.json"), encoding="utf-8") as file:
            keeper = json.load(file)
        return f"{keeper['host']}:{int(keeper['port'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return None
