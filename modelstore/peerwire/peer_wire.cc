// SPDX-License-Identifier: Apache-2.0
#include "modelstore/peerwire/peer_wire.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/plain/packet.h"

namespace bellows {
namespace {

Error socket_error(int failure) {
  return Error{ErrorKind::unavailable,
               fmt::format("the socket between bellows-modeld and bellows-model-peer: {}",
                           std::strerror(failure))};
}

}  // namespace

void PeerMessage::set_text(std::string_view from) {
  length = static_cast<std::uint32_t>(std::min(from.size(), kMostText));
  std::memset(text, 0, sizeof text);
  std::memcpy(text, from.data(), length);
}

void PeerMessage::set_digest(const ModelDigest& of) {
  std::memcpy(digest, of.bytes.data(), sizeof digest);
}

ModelDigest PeerMessage::model() const {
  ModelDigest of;
  std::memcpy(of.bytes.data(), digest, sizeof digest);
  return of;
}

Status send_message(int socket, const PeerMessage& message, int passed) {
  const iovec part = {const_cast<PeerMessage*>(&message), sizeof message};
  const int failure = plain::send_packet(socket, &part, 1, passed, MSG_DONTWAIT);
  return failure == 0 ? Status() : Status(socket_error(failure));
}

Result<bool> receive_message(int socket, PeerMessage* message, plain::Handle* passed) {
  const iovec part = {message, sizeof *message};
  std::size_t got = 0;
  const int failure = plain::receive_packet(socket, &part, 1, &got, passed, MSG_DONTWAIT);
  if (failure == EAGAIN) return false;
  if (failure != 0 && failure != EPROTO) return socket_error(failure);
  const bool whole = failure == 0 && got == sizeof *message &&
                     message->version == PeerMessage::kVersion && message->op >= PeerOp::ask &&
                     message->op <= PeerOp::listen && message->length <= PeerMessage::kMostText;
  if (whole) return true;
  return Error{ErrorKind::invalid,
               "bellows-modeld and bellows-model-peer are of different versions: restart "
               "bellows-modeld"};
}

}  // namespace bellows
