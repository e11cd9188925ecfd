// SPDX-License-Identifier: Apache-2.0
/// A model's catalogue as the library reads it. One that passes can be used without a further
/// check: every name ends, every name is found, every tensor lies in the data.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "modelstore/catalogue/catalogue.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Of its own size, so that what reads behind it is caught, and aligned as in memory.
  std::vector<std::uint64_t> copy((size + 7) / 8);
  if (size > 0) std::memcpy(copy.data(), data, size);
  bellows::catalogue::View view;
  if (const char* wrong = view.open(copy.data(), size)) {
    require(*wrong != '\0' && view.count() == 0);
    return 0;
  }
  const char* end = reinterpret_cast<const char*>(copy.data()) + size;
  for (std::uint32_t i = 0; i < view.count(); ++i) {
    const auto& record = view.record(i);
    require(view.name(i) + record.name_length < end);
    require(std::strlen(view.name(i)) == record.name_length);
    require(view.find(view.name(i), record.name_length) == i);
    require(record.offset + record.bytes <= view.data_bytes());
  }
  require(view.find("", 0) == view.count());
  return 0;
}
