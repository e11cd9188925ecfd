// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/digest.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>

namespace bellows {
namespace {

std::uint64_t parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string hex_of(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::optional<Hash128> parse_hash(std::string_view text) {
  if (!is_digest(text)) return {};
  return Hash128{parse_hex(text.substr(0, 16)), parse_hex(text.substr(16))};
}

Hash128 hash_of(const void* data, std::size_t bytes) {
  if (bytes >= kLeastHashed && hashes_wide()) return hash_block(data, bytes);
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.high64, hash.low64};
}

std::string digest_of(std::string_view data) { return hex_of(hash_of(data.data(), data.size())); }

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace bellows
