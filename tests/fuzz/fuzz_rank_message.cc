// SPDX-License-Identifier: Apache-2.0
/// What a rank sends over its socket. A message that passes has sizes that can be computed with.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/agent/rank_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = bellows::parse_rank_message({reinterpret_cast<const char*>(data), size});
  if (!message) {
    if (message.error().text.empty()) std::abort();
    return 0;
  }
  const auto* named = std::get_if<bellows::request::Array>(&*message);
  if (!named) return 0;
  const bellows::wire::Array& a = named->part.array;
  std::uint64_t held = 0;
  if (!bellows::wire::held_bytes(a, &held) || a.ndims > bellows::wire::kMostDims) std::abort();
  if (a.ndims > 0 && a.first + a.count > a.shape[a.axis]) std::abort();
  if (named->part.type_text().empty()) std::abort();
  return 0;
}
