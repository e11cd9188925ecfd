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
  const auto batch =
      BatchRecord::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!batch) {
    require(batch.error().kind == ErrorKind::corrupt && !batch.error().text.empty());
    return 0;
  }
  require(BatchRange{1, BatchRange::kMost}.contains(*batch));
  const auto again = BatchRecord::parse(fmt::format("{{\"batch\":{}}}\n", *batch));
  require(again.ok() && *again == *batch);
  return 0;
}
