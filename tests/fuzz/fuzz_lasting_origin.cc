// SPDX-License-Identifier: Apache-2.0
/// What a lasting container says it was made from, in a link that its user may write: it is refused
/// with a sentence, or is read as exactly what would be written again, fit for a terminal.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/lasting/lasting.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bellows;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto origin = lasting::parse_origin(text);
  if (!origin) {
    require(origin.error().kind == ErrorKind::corrupt && !origin.error().text.empty());
    return 0;
  }
  require(!origin->image.empty() && is_printable(text));
  require(!origin->identity.empty() && origin->identity.find_first_of(" /") == text.npos);
  require(lasting::origin_text(*origin) == text);
  return 0;
}
