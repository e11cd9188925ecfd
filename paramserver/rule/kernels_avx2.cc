// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "paramserver/rule/kernels.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace bellows::ps::avx2 {

#include "paramserver/rule/kernel_one.h"

struct Many {
  using Vector = __m256;
  static constexpr std::size_t kWidth = 8;

  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  static void stream(float* to, Vector value) { _mm256_stream_ps(to, value); }
  static void fence() { _mm_sfence(); }
  static Vector root(Vector value) { return _mm256_sqrt_ps(value); }
  // The second operand is the result if either is NaN.
  static Vector clip(Vector value, float most) {
    const Vector bound = _mm256_set1_ps(most);
    return _mm256_max_ps(-bound, _mm256_min_ps(bound, value));
  }
  static Vector settled(Vector value) {
    const Vector quiet = _mm256_castsi256_ps(_mm256_set1_epi32(kQuietNan));
    return _mm256_blendv_ps(value, quiet, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  static __m128i halves(const std::uint16_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static Vector from_bf16(const std::uint16_t* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(from)), 16));
  }
  static Vector from_f16(const std::uint16_t* from) { return _mm256_cvtph_ps(halves(from)); }

  struct Squares {
    __m256d sums[kPlaces / 4];
    void add(const Vector (&line)[2]) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(line[i]));
        const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(line[i], 1));
        sums[2 * i] = sums[2 * i] + low * low;
        sums[2 * i + 1] = sums[2 * i + 1] + high * high;
      }
    }
    void to(double* places) const {
      for (std::size_t i = 0; i < kPlaces / 4; ++i) _mm256_storeu_pd(places + 4 * i, sums[i]);
    }
  };
};

#include "paramserver/rule/kernel_body.h"

}  // namespace bellows::ps::avx2

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
