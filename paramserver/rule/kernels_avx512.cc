// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
// GCC's own header gives undefined vectors to instructions that ignore them (GCC's bug 105593).
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "paramserver/rule/kernels.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif

namespace bellows::ps::avx512 {

#include "paramserver/rule/kernel_one.h"

struct Many {
  using Vector = __m512;
  static constexpr std::size_t kWidth = 16;

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
  static void stream(float* to, Vector value) { _mm512_stream_ps(to, value); }
  static void fence() { _mm_sfence(); }
  static Vector root(Vector value) { return _mm512_sqrt_ps(value); }
  // The second operand is the result if either is NaN.
  static Vector clip(Vector value, float most) {
    const Vector bound = _mm512_set1_ps(most);
    return _mm512_max_ps(-bound, _mm512_min_ps(bound, value));
  }
  static Vector settled(Vector value) {
    const Vector quiet = _mm512_castsi512_ps(_mm512_set1_epi32(kQuietNan));
    return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), quiet);
  }
  static __m256i halves(const std::uint16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Vector from_bf16(const std::uint16_t* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(from)), 16));
  }
  static Vector from_f16(const std::uint16_t* from) { return _mm512_cvtph_ps(halves(from)); }

  struct Squares {
    __m512d sums[2];
    void add(const Vector (&line)[1]) {
      const __m512d whole = _mm512_castps_pd(line[0]);
      const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(line[0]));
      const __m512d high = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(whole, 1)));
      sums[0] = sums[0] + low * low;
      sums[1] = sums[1] + high * high;
    }
    void to(double* places) const {
      _mm512_storeu_pd(places, sums[0]);
      _mm512_storeu_pd(places + 8, sums[1]);
    }
  };
};

#include "paramserver/rule/kernel_body.h"

}  // namespace bellows::ps::avx512

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
