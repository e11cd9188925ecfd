// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/client/socket.h"

#include <errno.h>

namespace bellows::client {

int send_message(int fd, wire::Head head, const void* body, std::size_t length, const void* tail,
                 std::size_t tail_length) {
  head.length = static_cast<std::uint32_t>(length + tail_length);
  const iovec parts[3] = {{&head, sizeof head},
                          {const_cast<void*>(body), length},
                          {const_cast<void*>(tail), tail_length}};
  return plain::send_packet(fd, parts, 3, -1, 0);
}

int receive_message(int fd, Message* out) {
  const iovec parts[2] = {{&out->head, sizeof out->head}, {out->body, sizeof out->body - 1}};
  std::size_t got = 0;
  if (int failure = plain::receive_packet(fd, parts, 2, &got, &out->fd, 0)) return failure;
  if (got < sizeof out->head || out->head.version != wire::kVersion ||
      out->head.length != got - sizeof out->head) {
    return EPROTO;
  }
  out->body[out->head.length] = 0;
  return 0;
}

}  // namespace bellows::client
