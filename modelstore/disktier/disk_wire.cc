// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disktier/disk_wire.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/plain/packet.h"
#include "common/text.h"

namespace bellows {
namespace {

Error socket_error(int failure) {
  return Error{ErrorKind::unavailable,
               fmt::format("the socket between bellows-modeld and bellows-model-disk: {}",
                           std::strerror(failure))};
}

ModelDigest digest_at(const std::uint8_t (&bytes)[32]) {
  ModelDigest digest;
  std::memcpy(digest.bytes.data(), bytes, sizeof bytes);
  return digest;
}

}  // namespace

void DiskMessage::set_text(std::string_view from) {
  const std::string line = one_line(from, kMostText);
  length = static_cast<std::uint32_t>(line.size());
  std::memset(text, 0, sizeof text);
  std::memcpy(text, line.data(), line.size());
}

void DiskMessage::set_digest(const ModelDigest& of) {
  std::memcpy(digest, of.bytes.data(), sizeof digest);
}

void DiskMessage::set_source(const ModelDigest& of) {
  std::memcpy(source, of.bytes.data(), sizeof source);
}

ModelDigest DiskMessage::model() const { return digest_at(digest); }
ModelDigest DiskMessage::from() const { return digest_at(source); }

Status send_message(int socket, const DiskMessage& message, int passed) {
  const iovec part = {const_cast<DiskMessage*>(&message), sizeof message};
  const int failure = plain::send_packet(socket, &part, 1, passed, MSG_DONTWAIT);
  return failure == 0 ? Status() : Status(socket_error(failure));
}

Result<bool> receive_message(int socket, DiskMessage* message, plain::Handle* passed) {
  const iovec part = {message, sizeof *message};
  std::size_t got = 0;
  const int failure = plain::receive_packet(socket, &part, 1, &got, passed, MSG_DONTWAIT);
  if (failure == EAGAIN) return false;
  if (failure != 0 && failure != EPROTO) return socket_error(failure);
  const bool whole = failure == 0 && got == sizeof *message &&
                     message->version == DiskMessage::kVersion && message->word >= DiskWord::find &&
                     message->word <= DiskWord::held && message->length <= DiskMessage::kMostText;
  if (whole) return true;
  return Error{ErrorKind::invalid,
               "bellows-modeld and bellows-model-disk are of different versions: restart "
               "bellows-modeld"};
}

}  // namespace bellows
