// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of long inputs, after its specification (github.com/Cyan4973/xxHash,
// doc/xxhash_spec.md). Here beside libxxhash for two reasons: it copies in the same pass, and
// libbellows can link nothing but libc.
#include "checkpoint/wire/block_hash.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as XXH3 and the files have numbers");

namespace bellows {
namespace {

constexpr std::uint64_t kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                        kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                        kPrime5 = 0x27D4EB2F165667C5;
constexpr std::size_t kStripe = 64;
/// After so many stripes the sums are scrambled and the keys begin again.
constexpr std::size_t kStripes = 16;

// clang-format off
alignas(64) constexpr unsigned char kSecret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};
// clang-format on
constexpr const unsigned char* kScrambling = kSecret + sizeof kSecret - kStripe;
constexpr const unsigned char* kOfLast = kSecret + sizeof kSecret - kStripe - 7;

using Sums = std::uint64_t[8];
constexpr Sums kFirst = {kPrime32_3, kPrime1,    kPrime2, kPrime3,
                         kPrime4,    kPrime32_2, kPrime5, kPrime32_1};

std::uint64_t load(const unsigned char* from) {
  std::uint64_t value;
  memcpy(&value, from, sizeof value);
  return value;
}

std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t merge(const Sums& sums, const unsigned char* secret, std::uint64_t start) {
  for (int i = 0; i < 8; i += 2) {
    start += fold(sums[i] ^ load(secret + 8 * i), sums[i + 1] ^ load(secret + 8 * i + 8));
  }
  start ^= start >> 37;
  start *= 0x165667919E3779F9;
  return start ^ (start >> 32);
}

Hash128 finish(const Sums& sums, std::size_t bytes) {
  Hash128 out;
  out.low = merge(sums, kSecret + 11, bytes * kPrime1);
  out.high = merge(sums, kSecret + sizeof kSecret - sizeof(Sums) - 11, ~(bytes * kPrime2));
  return out;
}

// The last stripe overlaps the one before it, so it is taken from the copy where there is one.
const unsigned char* last_stripe(const unsigned char* from, std::size_t bytes, unsigned char* to) {
  if (!to) return from + bytes - kStripe;
  const std::size_t done = (bytes - 1) / kStripe * kStripe;
  memcpy(to + done, from + done, bytes - done);
  return to + bytes - kStripe;
}

void add(Sums& sums, const unsigned char* from, const unsigned char* key, unsigned char* to) {
  std::uint64_t data[8];
  memcpy(data, from, sizeof data);
  // The compiler may else load the bytes once for the copy and once for the sums.
  asm volatile("" : "+m"(data));
  if (to) memcpy(to, data, sizeof data);
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t mixed = data[i] ^ load(key + 8 * i);
    sums[i ^ 1] += data[i];
    sums[i] += (mixed & 0xFFFFFFFF) * (mixed >> 32);
  }
}

#ifdef __x86_64__
#define BELLOWS_WIDE [[gnu::target("avx2"), gnu::always_inline]] inline

enum class Store { none, cached, past_caches };

BELLOWS_WIDE __m256i read_wide(const unsigned char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}

template <Store kStore>
BELLOWS_WIDE void add_half(__m256i& sum, const unsigned char* from, const unsigned char* key,
                           unsigned char* to) {
  __m256i data = read_wide(from);
  // The compiler may else load the bytes once for the copy and once for the sum.
  asm volatile("" : "+x"(data));
  if constexpr (kStore == Store::cached)
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), data);
  if constexpr (kStore == Store::past_caches) {
    // In halves, since malloc gives large arrays at odd multiples of 16.
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(data));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + 16), _mm256_extracti128_si256(data, 1));
  }
  const __m256i mixed = _mm256_xor_si256(data, read_wide(key));
  const __m256i product = _mm256_mul_epu32(mixed, _mm256_srli_epi64(mixed, 32));
  const __m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
  sum = _mm256_add_epi64(sum, _mm256_add_epi64(product, swapped));
}

BELLOWS_WIDE void scramble_half(__m256i& sum, const unsigned char* key) {
  const __m256i prime = _mm256_set1_epi32(static_cast<int>(kPrime32_1));
  const __m256i mixed =
      _mm256_xor_si256(_mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47)), read_wide(key));
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
  sum = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
}

template <Store kStore>
[[gnu::target("avx2")]] Hash128 hash_wide(const unsigned char* from, std::size_t bytes,
                                          unsigned char* to) {
  // Far enough ahead for main memory.
  constexpr std::size_t kAhead = 1024;
  __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(kFirst));
  __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(kFirst + 4));
  const std::size_t stripes = (bytes - 1) / kStripe;
  for (std::size_t i = 0; i < stripes; ++i) {
    const unsigned char *at = from + i * kStripe, *key = kSecret + i % kStripes * 8;
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
    // Without a store, `to` is null, which nothing may be added to.
    unsigned char* into = kStore == Store::none ? to : to + i * kStripe;
    add_half<kStore>(low, at, key, into);
    add_half<kStore>(high, at + 32, key + 32, kStore == Store::none ? into : into + 32);
    if (i % kStripes != kStripes - 1) continue;
    scramble_half(low, kScrambling);
    scramble_half(high, kScrambling + 32);
  }
  if (kStore == Store::past_caches) _mm_sfence();
  const unsigned char* last = last_stripe(from, bytes, kStore == Store::none ? nullptr : to);
  add_half<Store::none>(low, last, kOfLast, nullptr);
  add_half<Store::none>(high, last + 32, kOfLast + 32, nullptr);
  Sums sums;
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(sums), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(sums + 4), high);
  return finish(sums, bytes);
}
#endif

}  // namespace

Hash128 hash_block_plainly(const void* data, std::size_t bytes, void* copy) {
  const auto* from = static_cast<const unsigned char*>(data);
  auto* to = static_cast<unsigned char*>(copy);
  Sums sums;
  memcpy(sums, kFirst, sizeof sums);
  const std::size_t stripes = (bytes - 1) / kStripe;
  for (std::size_t i = 0; i < stripes; ++i) {
    const std::size_t at = i * kStripe;
    add(sums, from + at, kSecret + i % kStripes * 8, to ? to + at : nullptr);
    if (i % kStripes != kStripes - 1) continue;
    for (int lane = 0; lane < 8; ++lane) {
      const std::uint64_t sum = sums[lane];
      sums[lane] = (sum ^ (sum >> 47) ^ load(kScrambling + 8 * lane)) * kPrime32_1;
    }
  }
  add(sums, last_stripe(from, bytes, to), kOfLast, nullptr);
  return finish(sums, bytes);
}

bool hashes_wide() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

Hash128 hash_block(const void* from, std::size_t bytes, void* to) {
#ifdef __x86_64__
  if (hashes_wide()) {
    const auto* in = static_cast<const unsigned char*>(from);
    auto* out = static_cast<unsigned char*>(to);
    if (!out) return hash_wide<Store::none>(in, bytes, nullptr);
    const bool aligned = reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
    return aligned ? hash_wide<Store::past_caches>(in, bytes, out)
                   : hash_wide<Store::cached>(in, bytes, out);
  }
#endif
  return hash_block_plainly(from, bytes, to);
}

}  // namespace bellows
