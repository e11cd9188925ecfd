// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Included by the library too: nothing here may need libstdc++ at run time.
namespace bellows {

/// An XXH3-128, its halves as libxxhash has them.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  constexpr bool operator==(const Hash128&) const = default;
};

/// XXH3 treats fewer bytes in other ways.
inline constexpr std::size_t kLeastHashed = 256;

/// The XXH3-128 of at least kLeastHashed bytes. `to`, unless it is null, gets a copy of them. What
/// is hashed is what is written there, whoever changes `from` meanwhile: every byte is loaded once.
/// A large copy passes the processor's caches where the processor can do that.
Hash128 hash_block(const void* from, std::size_t bytes, void* to = nullptr);

/// What hash_block does on a processor without wide registers.
Hash128 hash_block_plainly(const void* from, std::size_t bytes, void* to);

/// Whether hash_block uses this processor's wide registers. Else other implementations are faster.
bool hashes_wide();

}  // namespace bellows
