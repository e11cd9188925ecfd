// SPDX-License-Identifier: Apache-2.0
/// What the keeper gives a restarted bellows-modeld: a record is refused with a sentence, or reads
/// back as it is.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "modelstore/daemon/kept_record.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const auto record = parse_kept({reinterpret_cast<const char*>(data), size});
  if (!record) {
    require(record.error().kind == ErrorKind::corrupt && !record.error().text.empty());
    return 0;
  }
  const auto text = text_of(*record);
  if (!text) return 0;
  const auto back = parse_kept(*text);
  require(back.ok() && text_of(*back) == text);
  return 0;
}
