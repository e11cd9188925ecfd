// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/digest.h"

#include <fmt/core.h>

#include <charconv>
#include <new>

#include "checkpoint/block_hash.h"

namespace bellows {
namespace {

Hash128 to_hash(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

std::uint64_t parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

}  // namespace

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<Hash128> Hash128::parse(std::string_view text) {
  if (!is_digest(text)) return {};
  return Hash128{parse_hex(text.substr(0, 16)), parse_hex(text.substr(16))};
}

Hash128 hash_of(const void* data, std::size_t bytes) {
  if (bytes < kLeastHashed || !hashes_wide()) return to_hash(XXH3_128bits(data, bytes));
  const BlockHash hash = hash_block(data, bytes);
  return {hash.high, hash.low};
}

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Digest::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_.get(), data, bytes);
}

std::string Digest::hex() const { return to_hash(XXH3_128bits_digest(state_.get())).hex(); }

std::string digest_of(std::string_view data) { return hash_of(data.data(), data.size()).hex(); }

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace bellows
