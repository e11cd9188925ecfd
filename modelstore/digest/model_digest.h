// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// A SHA-256.
struct ModelDigest {
  std::array<unsigned char, 32> bytes = {};

  auto operator<=>(const ModelDigest&) const = default;

  /// 64 hexadecimal digits.
  std::string to_string() const;
  /// Takes what to_string gives, and nothing else.
  static std::optional<ModelDigest> parse(std::string_view text);
};

}  // namespace bellows
