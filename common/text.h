// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// Splits at every `separator`; an empty text gives one empty piece.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The pieces would outlive a text that is about to go, as that in the head of a loop does in
/// C++20.
template <std::same_as<std::string> Text>
std::vector<std::string_view> split(Text&& text, char separator) = delete;

/// ASCII only, as Slurm does for account names.
std::string to_lower(std::string_view text);

std::string_view trim(std::string_view text);

/// The value of a key in "KEY=VALUE,KEY=VALUE", as in slurm.conf's AuthInfo; nothing when it is not
/// there.
std::optional<std::string_view> value_in(std::string_view list, std::string_view key);

/// ASCII only, whatever the locale.
constexpr bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Whether a shell could name a variable so: letters, digits and "_", no digit first.
bool is_variable_name(std::string_view text);

constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Text from elsewhere, made fit for one line of at most `most` bytes: a tab becomes a space, and
/// other control characters become question marks, since they could steer a user's terminal. "..."
/// stands for what is left out.
std::string one_line(std::string_view text, std::size_t most = std::string_view::npos);

/// As one word of a shell, whatever is in it: in single quotes.
std::string shell_quoted(std::string_view text);

/// "1 GPU", "2 GPUs"; of a text "1-8 GPUs".
std::string counted(std::uint64_t number, std::string_view what);
std::string counted(std::string_view number, std::string_view what);

/// Decimal digits only: no sign, no spaces, no overflow; nothing otherwise.
std::optional<std::uint64_t> parse_uint(std::string_view text);

/// The candidate nearest to `word`: within edit distance 3, and less than half of the longer word
/// changed. "" when there is none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace bellows
