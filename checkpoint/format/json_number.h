// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace bellows {

/// What json_number throws: a sentence.
struct NotANumber {
  std::string text;
};

/// A whole number under a key. json's own numbers convert silently between kinds and signs.
inline std::uint64_t json_number(const nlohmann::json& j, const char* key, std::uint64_t most) {
  const nlohmann::json& value = j.at(key);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= most) {
    return value.get<std::uint64_t>();
  }
  throw NotANumber{fmt::format("\"{}\" is not a whole number from 0 to {}", key, most)};
}

}  // namespace bellows
