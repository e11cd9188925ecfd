// SPDX-License-Identifier: Apache-2.0
#include "modelstore/digest/model_digest.h"

#include <fmt/core.h>

namespace bellows {

std::string ModelDigest::to_string() const {
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<ModelDigest> ModelDigest::parse(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  ModelDigest digest;
  if (text.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto value = kDigits.find(text[i]);
    if (value == std::string_view::npos) return std::nullopt;
    unsigned char& byte = digest.bytes[i / 2];
    byte = static_cast<unsigned char>(byte << 4 | value);
  }
  return digest;
}

}  // namespace bellows
