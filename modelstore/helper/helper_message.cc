// SPDX-License-Identifier: Apache-2.0
#include "modelstore/helper/helper_message.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/plain/packet.h"

namespace bellows {
namespace {

Error socket_error(const char* process, int failure) {
  return Error{ErrorKind::unavailable, fmt::format("the socket between bellows-modeld and {}: {}",
                                                   process, std::strerror(failure))};
}

}  // namespace

Error other_version(const char* process) {
  return Error{ErrorKind::invalid,
               fmt::format("bellows-modeld and {} are of different versions: restart "
                           "bellows-modeld",
                           process)};
}

std::uint32_t put_text(char* to, std::size_t most, std::string_view text) {
  const std::size_t length = std::min(text.size(), most);
  std::memcpy(to, text.data(), length);
  std::memset(to + length, 0, most - length);
  return static_cast<std::uint32_t>(length);
}

Status send_helper_bytes(int socket, const void* message, std::size_t bytes, int passed,
                         const char* process) {
  const iovec part = {const_cast<void*>(message), bytes};
  const int failure = plain::send_packet(socket, &part, 1, passed, MSG_DONTWAIT);
  return failure == 0 ? Status() : Status(socket_error(process, failure));
}

Result<bool> receive_helper_bytes(int socket, void* message, std::size_t bytes,
                                  plain::Handle* passed, const char* process) {
  const iovec part = {message, bytes};
  std::size_t got = 0;
  const int failure = plain::receive_packet(socket, &part, 1, &got, passed, MSG_DONTWAIT);
  if (failure == EAGAIN) return false;
  if (failure != 0 && failure != EPROTO) return socket_error(process, failure);
  if (failure == EPROTO || got != bytes) return other_version(process);
  return true;
}

}  // namespace bellows
