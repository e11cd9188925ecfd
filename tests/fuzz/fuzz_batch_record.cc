// SPDX-License-Identifier: Apache-2.0
/// The record of a batch as its user or a full disk may leave it: what is taken is a batch that a
/// contract could have, and reads back; anything else is a sentence.

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/record/batch_record.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const auto ordered =
      BatchRecord::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!ordered) {
    require(ordered.error().kind == ErrorKind::corrupt && !ordered.error().text.empty());
    return 0;
  }
  const BatchRange any{1, BatchRange::kMost};
  require(ordered->any());
  require(!ordered->batch || any.contains(*ordered->batch));
  require(!ordered->planned ||
          (any.contains(ordered->planned->batch) && ordered->planned->gpus > 0));
  const auto again = BatchRecord::parse(BatchRecord::to_json(*ordered));
  require(again.ok() && *again == *ordered);
  return 0;
}
