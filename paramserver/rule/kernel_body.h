// SPDX-License-Identifier: Apache-2.0
// The loops, in terms of One and Many; Many is what an instruction set has. It is included once for
// each set, in the set's namespace and between the pragmas that choose its instructions, and so
// includes nothing itself: an inline function of another header would be compiled for those
// instructions too, and the linker may take that copy of it for all the program.
//
// Vectors have GCC's operators, so that the arithmetic is written once for vectors and for single
// floats. No multiplication may be contracted with an addition: -ffp-contract=off, without which
// GCC does so even with what was written as intrinsics.

template <class L, GradientType type>
[[gnu::always_inline]] inline typename L::Vector number(const void* gradient, std::size_t at) {
  if constexpr (type == GradientType::f32)
    return L::load(static_cast<const float*>(gradient) + at);
  else if constexpr (type == GradientType::bf16)
    return L::from_bf16(static_cast<const std::uint16_t*>(gradient) + at);
  else
    return L::from_f16(static_cast<const std::uint16_t*>(gradient) + at);
}

template <class L, GradientType type>
[[gnu::always_inline]] inline typename L::Vector summed(const void* const* gradients,
                                                        unsigned count, std::size_t at) {
  auto sum = number<L, type>(gradients[0], at);
  for (unsigned i = 1; i < count; ++i) sum = sum + number<L, type>(gradients[i], at);
  return sum;
}

template <class L, bool past>
[[gnu::always_inline]] inline void put(float* to, typename L::Vector value) {
  if constexpr (past)
    L::stream(to, L::settled(value));
  else
    L::store(to, L::settled(value));
}

/// The new weights from what is left of the old ones and a gradient; stores the new state.
template <class L, Rule rule, bool past>
[[gnu::always_inline]] inline typename L::Vector moved(const Factors& f, const Arrays& a,
                                                       std::size_t at, typename L::Vector kept,
                                                       typename L::Vector g) {
  if constexpr (rule == Rule::sgd) {
    return kept + g * f.rate;
  } else if constexpr (rule == Rule::momentum) {
    const auto s = L::load(a.state[0] + at) * f.beta1 + g;
    put<L, past>(a.new_state[0] + at, s);
    return kept + (f.nesterov ? g + s * f.beta1 : s) * f.rate;
  } else if constexpr (rule == Rule::adagrad) {
    const auto s = L::load(a.state[0] + at) + g * g;
    put<L, past>(a.new_state[0] + at, s);
    return kept + g * f.rate / (L::root(s) + f.epsilon);
  } else if constexpr (rule == Rule::adam) {
    const auto s = L::load(a.state[0] + at) * f.beta1 + g * f.rest1;
    const auto t = L::load(a.state[1] + at) * f.beta2 + g * f.rest2 * g;
    put<L, past>(a.new_state[0] + at, s);
    put<L, past>(a.new_state[1] + at, t);
    return kept + s * f.rate / (L::root(t) / f.root + f.epsilon);
  } else {
    const auto s = L::load(a.state[0] + at) * f.beta2 + g * f.rest2 * g;
    put<L, past>(a.new_state[0] + at, s);
    const auto divisor = L::root(s) + f.epsilon;
    if (!f.second) return kept + g * f.rate / divisor;
    const auto t = L::load(a.state[1] + at) * f.beta1 + g / divisor;
    put<L, past>(a.new_state[1] + at, t);
    return kept + t * f.rate;
  }
}

/// From one element to before another, as many as are whole vectors.
template <class L, Rule rule, GradientType type, bool past>
void range(const Factors& factors, const Arrays& arrays, std::size_t at, std::size_t end) {
  // Own copies: a store through a pointer could change what anybody else can see.
  const Factors f = factors;
  const Arrays a = arrays;
  for (; at + L::kWidth <= end; at += L::kWidth) {
    auto g = L::clip(summed<L, type>(a.gradients, a.count, at) * f.scale, f.clip);
    const auto w = L::load(a.weights + at);
    if (f.decays) g = g + w * f.decay;
    put<L, past>(a.new_weights + at, moved<L, rule, past>(f, a, at, w * f.kept, g));
  }
}

constexpr unsigned states_of(Rule rule, const Factors& f) {
  return rule == Rule::sgd ? 0 : rule == Rule::adam || (rule == Rule::rmsprop && f.second) ? 2 : 1;
}

/// How many elements lie before a multiple of 64 bytes in all new arrays, if it is the same number.
inline bool lines_begin_together(const Arrays& a, unsigned states, std::size_t* before) {
  const auto offset = [](const float* array) {
    return reinterpret_cast<std::uintptr_t>(array) % 64;
  };
  const std::uintptr_t first = offset(a.new_weights);
  for (unsigned i = 0; i < states; ++i)
    if (offset(a.new_state[i]) != first) return false;
  *before = (64 - first) % 64 / sizeof(float);
  return true;
}

template <Rule rule, GradientType type>
void apply(const Factors& f, const Arrays& a, std::size_t elements) {
  const unsigned states = states_of(rule, f);
  std::size_t before = 0;
  const bool past = elements * sizeof(float) * (1 + states) >= a.past_cache &&
                    lines_begin_together(a, states, &before) && before < elements;
  const std::size_t begin = past ? before : 0;
  const std::size_t end = elements - (elements - begin) % Many::kWidth;
  range<One, rule, type, false>(f, a, 0, begin);
  if (past) {
    range<Many, rule, type, true>(f, a, begin, end);
    Many::fence();
  } else {
    range<Many, rule, type, false>(f, a, begin, end);
  }
  range<One, rule, type, false>(f, a, end, elements);
}

template <GradientType type>
double squares(const void* const* gradients, unsigned count, std::size_t elements) {
  double places[kPlaces] = {};
  Many::Squares sums{};
  std::size_t at = 0;
  for (; at + kPlaces <= elements; at += kPlaces) {
    Many::Vector line[kPlaces / Many::kWidth];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kPlaces / Many::kWidth; ++i)
      line[i] = summed<Many, type>(gradients, count, at + i * Many::kWidth);
    sums.add(line);
  }
  sums.to(places);
  for (std::size_t i = 0; at + i < elements; ++i) {
    const double x = summed<One, type>(gradients, count, at + i);
    places[i] += x * x;
  }
  double sum = 0;
  for (const double place : places) sum += place;
  return sum != sum ? std::bit_cast<double>(std::uint64_t{0x7ff8} << 48) : sum;
}

template <Rule rule>
Apply choose_type(GradientType type) {
  switch (type) {
    case GradientType::bf16:
      return apply<rule, GradientType::bf16>;
    case GradientType::f16:
      return apply<rule, GradientType::f16>;
    case GradientType::f32:
      break;
  }
  return apply<rule, GradientType::f32>;
}

Apply choose(Rule rule, GradientType type) {
  switch (rule) {
    case Rule::momentum:
      return choose_type<Rule::momentum>(type);
    case Rule::adagrad:
      return choose_type<Rule::adagrad>(type);
    case Rule::adam:
      return choose_type<Rule::adam>(type);
    case Rule::rmsprop:
      return choose_type<Rule::rmsprop>(type);
    case Rule::sgd:
      break;
  }
  return choose_type<Rule::sgd>(type);
}

SumSquares choose_squares(GradientType type) {
  switch (type) {
    case GradientType::bf16:
      return squares<GradientType::bf16>;
    case GradientType::f16:
      return squares<GradientType::f16>;
    case GradientType::f32:
      break;
  }
  return squares<GradientType::f32>;
}
