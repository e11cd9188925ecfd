// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstddef>

#include "common/plain/handle.h"

/// Messages over unix SOCK_SEQPACKET sockets. Each function gives 0 or an errno value.
namespace bellows::plain {

/// A socket that is connected to a path. Where the other side has too many that wait, it waits too,
/// unless for longer than `wait_ms`: ETIMEDOUT. Sends on it have the same limit.
int connect_to(const char* path, Handle* out, int wait_ms = -1);

/// One message of several parts, with a descriptor unless `passed` is -1. `flags`: MSG_DONTWAIT.
int send_packet(int socket, const iovec* parts, std::size_t count, int passed, int flags);

/// One message, and its descriptor in `passed`; without `passed`, descriptors are dropped. EPIPE:
/// the other side is gone. EPROTO: the message does not fit the parts.
int receive_packet(int socket, const iovec* parts, std::size_t count, std::size_t* bytes,
                   Handle* passed, int flags);

/// True when the other side has closed.
bool hung_up(int socket);

}  // namespace bellows::plain
