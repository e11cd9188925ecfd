// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "checkpoint/format/array_part.h"
#include "checkpoint/wire/wire.h"
#include "common/result.h"

namespace bellows {

/// What a rank may send to its agent, as checkpoint/wire/wire.h has it.
namespace request {

struct Hello {
  wire::Hello hello;
  std::string belongs;  ///< to which directory or attempt
};
/// Replaces the arrays named so far.
struct Layout {
  std::uint64_t arrays;  ///< how many follow
};
struct Array {
  ArrayPart part;
};
struct SaveBegin {
  std::uint64_t step;
};
struct SaveReady {
  std::uint64_t step;
  bool copied;  ///< false: the step fails
};
struct Restore {
  bool whole;  ///< it reads nothing itself
};
/// What the answer to its restore left to it.
struct Taken {
  bool all;
};
struct Reserve {};
struct Bye {
  wire::Bye how;
};

}  // namespace request

/// A message from a rank, checked as far as it can be without knowing the rank's state.
using RankMessage = std::variant<request::Hello, request::Layout, request::Array,
                                 request::SaveBegin, request::SaveReady, request::Restore,
                                 request::Taken, request::Reserve, request::Bye>;

/// invalid: not a message a rank may send.
Result<RankMessage> parse_rank_message(std::string_view bytes);

/// What a hello names when it is of another version of the protocol.
std::optional<std::uint32_t> other_version(std::string_view bytes);

}  // namespace bellows
