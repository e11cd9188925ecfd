// SPDX-License-Identifier: Apache-2.0
/// A shard's index as a damaged disk or another user would leave it: what passes can be computed
/// with, and comes back the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/format/index.h"

using bellows::ShardIndex;

namespace {

void check(const ShardIndex& index) {
  std::uint64_t covered = 0;
  for (std::uint64_t b = 0; b < index.digests.size(); ++b) covered += index.block_bytes(b);
  if (covered != index.size || index.rank >= index.world) std::abort();
  for (const bellows::StoredPart& stored : index.arrays) {
    if (!bellows::check_stored_part(stored.part)) std::abort();
    if (stored.part.bytes() > index.size - stored.offset) std::abort();
  }
  for (const bellows::StoredValue& value : index.values) {
    if (value.bytes.size() != value.part.bytes() || value.bytes.size() > 4096) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = ShardIndex::parse({reinterpret_cast<const char*>(data), size});
  if (!index) {
    if (index.error().kind != bellows::ErrorKind::corrupt || index.error().text.empty()) {
      std::abort();
    }
    return 0;
  }
  check(*index);
  const std::string text = index->to_string();
  const auto again = ShardIndex::parse(text);
  if (!again || again->to_string() != text) std::abort();
  return 0;
}
