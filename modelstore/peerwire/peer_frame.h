// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// What a frame between two nodes has.
enum class PeerFrame : char {
  hello = 'H',     ///< a number, which a question by this connection must have
  question = 'Q',  ///< a credential
  wait = 'W',      ///< eight bytes, the most significant first: how far the model is
  answer = 'A',    ///< a credential
  got = 'G',       ///< nothing
};

struct PeerLetter {
  PeerFrame kind = PeerFrame::got;
  std::string text;
};

/// A credential is not nearly as long.
inline constexpr std::size_t kMostFrame = 16384;

std::string frame_of(PeerFrame kind, std::string_view text);
std::string wait_frame(std::uint64_t far);
/// Of a wait frame's text.
std::uint64_t far_of(std::string_view text);

/// The frame at the begin of `bytes`, which it takes away from there; nothing: it is not whole yet.
/// denied: no frame begins so.
Result<std::optional<PeerLetter>> take_frame(std::string& bytes);

}  // namespace bellows
