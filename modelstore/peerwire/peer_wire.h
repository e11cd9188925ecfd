// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "modelstore/digest/model_digest.h"
#include "modelstore/helper/helper_message.h"

namespace bellows {

/// What is said between bellows-modeld and its bellows-model-peer.
enum class PeerOp : std::uint32_t {
  ask = 1,       ///< number, text: a PeerQuestion, whose credential was right
  done = 2,      ///< number: what was lent is read no more, or not wanted
  how_far = 3,   ///< number
  notice = 4,    ///< text: for the log
  lent = 5,      ///< number, digest, bytes, catalogue: with the memory, open for reading
  none = 6,      ///< number, text: why
  progress = 7,  ///< number, bytes: it is on its way; more, if it has got on since
  listen = 8,    ///< with the socket that other nodes connect to; before anything else
};

struct PeerMessage {
  static constexpr const char* kProcess = "bellows-model-peer";
  static constexpr std::uint32_t kVersion = 2;
  static constexpr std::size_t kMostText = 1023;

  std::uint32_t version = kVersion;
  PeerOp op = PeerOp::none;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
  ModelDigest digest;
  std::uint32_t unused = 0;
  std::uint32_t length = 0;
  char text[kMostText + 1] = {};

  /// Cuts what is too long.
  void set_text(std::string_view from) { length = put_text(text, kMostText, from); }
  std::string_view text_view() const { return {text, length}; }
  bool is_sound() const {
    return version == kVersion && op >= PeerOp::ask && op <= PeerOp::listen && length <= kMostText;
  }
};

}  // namespace bellows
