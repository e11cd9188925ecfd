// SPDX-License-Identifier: Apache-2.0
// The same functions for each instruction set; rule.cc chooses among them.
#pragma once

#include "paramserver/rule/rule.h"

#ifdef __FAST_MATH__
#error "the rules need IEEE arithmetic: build without -ffast-math"
#endif

namespace bellows::ps {

namespace scalar {
Apply choose(Rule rule, GradientType type);
SumSquares choose_squares(GradientType type);
}  // namespace scalar

#ifdef __x86_64__
namespace avx2 {
Apply choose(Rule rule, GradientType type);
SumSquares choose_squares(GradientType type);
}  // namespace avx2

namespace avx512 {
Apply choose(Rule rule, GradientType type);
SumSquares choose_squares(GradientType type);
}  // namespace avx512
#endif

}  // namespace bellows::ps
