// SPDX-License-Identifier: Apache-2.0
/// The record of a parameter server as its user may leave it: what is taken reads back, and can be
/// shown; anything else is a sentence.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "launcher/record/server_record.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const auto record =
      ServerRecord::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!record) {
    require(record.error().kind == ErrorKind::corrupt && !record.error().text.empty());
    return 0;
  }
  for (const double measure : {record->time, record->updates_per_second, record->staleness})
    require(std::isfinite(measure) && measure >= 0);
  require(!record->to_string().empty());
  const auto again = ServerRecord::parse(record->to_json());
  require(again.ok() && *again == *record);
  return 0;
}
