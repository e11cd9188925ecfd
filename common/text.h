// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// Splits at every `separator`; an empty text gives one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

/// ASCII only, as Slurm does for account names.
std::string to_lower(std::string_view text);

std::string_view trim(std::string_view text);

/// ASCII only, whatever the locale.
constexpr bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Whether a shell could name a variable so: letters, digits and "_", no digit first.
bool is_variable_name(std::string_view text);

/// Control characters become question marks: others' text must not steer a user's terminal.
std::string harmless(std::string text);

/// "1 GPU", "2 GPUs"; of a text "1-8 GPUs".
std::string counted(std::uint64_t number, std::string_view what);
std::string counted(std::string_view number, std::string_view what);

/// Decimal digits only: no sign, no spaces, no overflow; nothing otherwise.
std::optional<std::uint64_t> parse_uint(std::string_view text);

/// The candidate nearest to `word`: within edit distance 3, and less than half of the longer word
/// changed. "" when there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace bellows
