// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "paramserver/rule/kernels.h"

static_assert(FLT_EVAL_METHOD == 0, "each operation must round to its type");

namespace bellows::ps::scalar {

#include "paramserver/rule/kernel_one.h"

struct Many : One {
  static void fence() {}
  struct Squares {
    double sums[kPlaces];
    void add(const Vector (&line)[kPlaces]) {
      for (std::size_t i = 0; i < kPlaces; ++i) {
        const double x = line[i];
        sums[i] += x * x;
      }
    }
    void to(double* places) const {
      for (std::size_t i = 0; i < kPlaces; ++i) places[i] = sums[i];
    }
  };
};

#include "paramserver/rule/kernel_body.h"

}  // namespace bellows::ps::scalar
