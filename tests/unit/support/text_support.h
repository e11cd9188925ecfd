// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bellows {

inline bool has(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

}  // namespace bellows
