// SPDX-License-Identifier: Apache-2.0
#include "paramserver/rule/rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "paramserver/rule/kernels.h"

namespace bellows::ps {

bool runs_here(InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::avx512) return __builtin_cpu_supports("avx512f");
  if (set == InstructionSet::avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#endif
  return set == InstructionSet::scalar;
}

InstructionSet fastest_set() {
  for (const auto set : {InstructionSet::avx512, InstructionSet::avx2})
    if (runs_here(set)) return set;
  return InstructionSet::scalar;
}

Factors factors_of(Rule rule, const Terms& terms) {
  const auto rounded = [](double value) { return static_cast<float>(value); };
  const double step = static_cast<double>(terms.step);
  double rate = terms.rate, root = 1;
  if (rule == Rule::adam) {
    rate = terms.rate / (1 - std::pow(terms.beta1, step));
    root = std::sqrt(1 - std::pow(terms.beta2, step));
  }
  const bool decays = terms.weight_decay != 0 && !terms.decoupled;
  const double kept = terms.decoupled ? 1 - terms.rate * terms.weight_decay : 1;
  return {.scale = rounded(terms.scale),
          .clip = terms.clip_value > 0 ? rounded(terms.clip_value)
                                       : std::numeric_limits<float>::infinity(),
          .decay = rounded(terms.weight_decay),
          .kept = rounded(kept),
          .rate = rounded(-rate),
          .beta1 = rounded(terms.beta1),
          .beta2 = rounded(terms.beta2),
          .rest1 = rounded(1 - terms.beta1),
          .rest2 = rounded(1 - terms.beta2),
          .root = rounded(root),
          .epsilon = rounded(terms.epsilon),
          .decays = decays,
          .nesterov = terms.nesterov,
          .second = rule == Rule::rmsprop && terms.beta1 > 0};
}

unsigned states_of(Rule rule, const Terms& terms) {
  if (rule == Rule::sgd) return 0;
  return rule == Rule::adam || (rule == Rule::rmsprop && terms.beta1 > 0) ? 2 : 1;
}

Apply choose(Rule rule, GradientType type, InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::avx512) return avx512::choose(rule, type);
  if (set == InstructionSet::avx2) return avx2::choose(rule, type);
#endif
  return scalar::choose(rule, type);
}

SumSquares choose_squares(GradientType type, InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::avx512) return avx512::choose_squares(type);
  if (set == InstructionSet::avx2) return avx2::choose_squares(type);
#endif
  return scalar::choose_squares(type);
}

double norm_scale(double norm, double most) { return std::min(1.0, most / (norm + 1e-6)); }

}  // namespace bellows::ps
