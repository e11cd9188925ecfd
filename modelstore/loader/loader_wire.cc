// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/loader_wire.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/plain/packet.h"
#include "common/text.h"

namespace bellows {
namespace {

Error socket_error(int failure) {
  return Error{
      ErrorKind::unavailable,
      fmt::format("the socket between bellows-modeld and its loader: {}", std::strerror(failure))};
}

}  // namespace

void LoaderMessage::set_text(std::string_view from) {
  const std::string line = one_line(from, kMostText);
  length = static_cast<std::uint32_t>(line.size());
  std::memset(text, 0, sizeof text);
  std::memcpy(text, line.data(), line.size());
}

void LoaderMessage::set_bytes(std::string_view from) {
  length = static_cast<std::uint32_t>(std::min(from.size(), kMostText));
  std::memcpy(text, from.data(), length);
}

Error LoaderMessage::to_error() const {
  const auto kind = error <= static_cast<std::uint32_t>(ErrorKind::internal)
                        ? static_cast<ErrorKind>(error)
                        : ErrorKind::internal;
  return Error{kind, length > 0 ? one_line(text_view()) : "the loader does not say why"};
}

Status send_message(int socket, const LoaderMessage& message, int passed) {
  const iovec part = {const_cast<LoaderMessage*>(&message), sizeof message};
  const int failure = plain::send_packet(socket, &part, 1, passed, MSG_DONTWAIT);
  return failure == 0 ? Status() : Status(socket_error(failure));
}

Status receive_message(int socket, LoaderMessage* message, plain::Handle* passed) {
  const iovec part = {message, sizeof *message};
  std::size_t got = 0;
  const int failure = plain::receive_packet(socket, &part, 1, &got, passed, MSG_DONTWAIT);
  if (failure == EAGAIN) {
    *message = {};
    message->word = LoaderWord::progress;
    message->bytes = UINT64_MAX;
    return {};
  }
  if (failure != 0 && failure != EPROTO) return socket_error(failure);
  const bool whole = failure == 0 && got == sizeof *message &&
                     message->version == LoaderMessage::kVersion &&
                     message->word >= LoaderWord::load && message->word <= LoaderWord::files &&
                     message->length <= LoaderMessage::kMostText;
  if (whole) return {};
  return Error{ErrorKind::invalid,
               "bellows-modeld and its loader are of different versions: restart bellows-modeld"};
}

}  // namespace bellows
