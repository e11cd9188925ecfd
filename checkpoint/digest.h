// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// An XXH3-128.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Hash128&) const = default;

  /// 32 lower-case hexadecimal digits: what `xxh128sum` prints.
  std::string hex() const;
  /// What hex() writes; nothing for any other text.
  static std::optional<Hash128> parse(std::string_view text);
};

Hash128 hash_of(const void* data, std::size_t bytes);

/// A running XXH3-128. One thread at a time.
class Digest {
 public:
  Digest();
  void add(const void* data, std::size_t bytes);
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string digest_of(std::string_view data);

/// Whether the text is a digest as hex() writes it.
bool is_digest(std::string_view text);

}  // namespace bellows
