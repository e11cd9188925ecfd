// SPDX-License-Identifier: Apache-2.0
// The library's XXH3-128 gives what libxxhash does, and copies what it hashes.
#include <criterion/criterion.h>
#include <xxhash.h>

#include <cstring>
#include <vector>

#include "checkpoint/wire/block_hash.h"

using namespace bellows;

namespace {

std::vector<unsigned char> bytes_of(std::size_t count) {
  std::vector<unsigned char> out(count);
  std::uint64_t state = 1;
  for (unsigned char& byte : out) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return out;
}

Hash128 expected(const unsigned char* from, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(from, bytes);
  return {hash.high64, hash.low64};
}

using Hash = Hash128 (*)(const void*, std::size_t, void*);

// From and to every kind of address; what lies around the copy must stay.
void check(Hash hash, std::size_t bytes) {
  const auto data = bytes_of(bytes + 1);
  std::vector<unsigned char> room(bytes + 128);
  unsigned char* aligned = room.data();
  while (reinterpret_cast<std::uintptr_t>(aligned) % 32 != 0) ++aligned;
  for (const std::size_t from : {0, 1}) {
    const Hash128 wanted = expected(data.data() + from, bytes);
    cr_assert(hash(data.data() + from, bytes, nullptr) == wanted, "%zu bytes", bytes);
    for (const std::size_t to : {0, 16, 5}) {
      std::fill(room.begin(), room.end(), 0xEE);
      unsigned char* copy = aligned + 16 + to;
      cr_assert(hash(data.data() + from, bytes, copy) == wanted, "%zu bytes, copied", bytes);
      cr_assert(std::memcmp(copy, data.data() + from, bytes) == 0, "%zu bytes", bytes);
      cr_assert(copy[-1] == 0xEE && copy[bytes] == 0xEE, "%zu bytes: more was written", bytes);
    }
  }
}

}  // namespace

Test(block_hash, is_what_libxxhash_says, .timeout = 60) {
  for (const Hash hash : {hash_block, hash_block_plainly}) {
    for (std::size_t bytes = kLeastHashed; bytes < 3400; ++bytes) check(hash, bytes);
    for (const std::size_t bytes : {65536, 65537, (4 << 20) - 1, 4 << 20}) check(hash, bytes);
  }
}

Test(block_hash, one_bit_is_another_hash, .timeout = 60) {
  auto data = bytes_of(5000);
  const Hash128 before = hash_block(data.data(), data.size());
  for (const std::size_t at : {0, 1023, 1024, 4935, 4936, 4999}) {
    data[at] ^= 1;
    cr_expect(hash_block(data.data(), data.size()) != before, "byte %zu", at);
    data[at] ^= 1;
  }
}
