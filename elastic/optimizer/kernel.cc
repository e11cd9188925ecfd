// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/kernel.h"

#include <algorithm>
#include <limits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace bellows {
namespace {

void convolve_scalar(const std::int32_t* before, const std::vector<CurveStep>& steps,
                     std::int32_t* after, std::size_t n) {
  for (std::size_t c = 0; c < n; ++c) {
    std::int32_t best = std::numeric_limits<std::int32_t>::min();
    for (const CurveStep& step : steps)
      best = std::max(best, *(before + c - step.gpus) + step.value);
    after[c] = best;
  }
}

#ifdef __x86_64__
// The best of a block stays in registers over all steps, so that a step costs one load.
__attribute__((target("avx2"))) void convolve_avx2(const std::int32_t* before,
                                                   const std::vector<CurveStep>& steps,
                                                   std::int32_t* after, std::size_t n) {
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kVectors = kCurveBlock / kLanes;
  for (std::size_t c = 0; c < n; c += kCurveBlock) {
    __m256i best[kVectors];
    for (__m256i& b : best) b = _mm256_set1_epi32(std::numeric_limits<std::int32_t>::min());
    for (const CurveStep& step : steps) {
      const __m256i value = _mm256_set1_epi32(step.value);
      const std::int32_t* from = before + c - step.gpus;
      for (std::size_t i = 0; i < kVectors; ++i) {
        const auto* at = reinterpret_cast<const __m256i*>(from + i * kLanes);
        best[i] = _mm256_max_epi32(best[i], _mm256_add_epi32(_mm256_loadu_si256(at), value));
      }
    }
    for (std::size_t i = 0; i < kVectors; ++i)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(after + c + i * kLanes), best[i]);
  }
}
#endif

}  // namespace

Kernel fastest_kernel() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return Kernel::avx2;
#endif
  return Kernel::scalar;
}

void convolve(Kernel kernel, const std::int32_t* before, const std::vector<CurveStep>& steps,
              std::int32_t* after, std::size_t n) {
#ifdef __x86_64__
  if (kernel == Kernel::avx2) return convolve_avx2(before, steps, after, n);
#endif
  convolve_scalar(before, steps, after, n);
}

}  // namespace bellows
