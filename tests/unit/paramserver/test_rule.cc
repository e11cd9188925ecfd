// SPDX-License-Identifier: Apache-2.0
// The rules of the parameter server: by hand, and that each instruction set gives the same bits.
#include <criterion/criterion.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "paramserver/rule/rule.h"

using namespace bellows::ps;

TestSuite(rule, .timeout = 120);

namespace {

constexpr Rule kRules[] = {Rule::sgd, Rule::momentum, Rule::adagrad, Rule::adam, Rule::rmsprop};
constexpr GradientType kTypes[] = {GradientType::f32, GradientType::bf16, GradientType::f16};
constexpr InstructionSet kVectors[] = {InstructionSet::avx2, InstructionSet::avx512};
constexpr std::uint32_t kNan = 0x7fc00000;
// Of each array that is written, before and after it.
constexpr std::size_t kGuard = 32;
constexpr float kUntouched = 77;

using Random = std::mt19937;

std::uint32_t up_to(Random& random, std::uint32_t most) {
  return static_cast<std::uint32_t>(random() % (most + 1));
}

/// Of all kinds: NaN with any payload, infinite, denormal, zeros, the largest, ordinary.
std::uint32_t float_bits(Random& random) {
  const std::uint32_t sign = up_to(random, 1) << 31, fraction = up_to(random, 0x7fffff);
  switch (up_to(random, 24)) {
    case 0:
      return sign | 0x7f800000 | fraction;
    case 1:
      return sign | 0x7f800000;
    case 2:
      return sign | fraction;
    case 3:
      return sign;
    case 4:
      return sign | 0x7f7fffff;
    case 5:
      return static_cast<std::uint32_t>(random());
    default:
      return sign | (117 + up_to(random, 15)) << 23 | fraction;
  }
}

/// Numbers at any distance from a multiple of 64 bytes, with something after and before them.
struct Numbers {
  Numbers(std::size_t elements, std::size_t offset) : bytes(4 * (elements + 2 * kGuard) + 128) {
    const std::size_t misplaced = reinterpret_cast<std::uintptr_t>(bytes.data()) % 64;
    first = bytes.data() + 64 - misplaced + 4 * kGuard + offset;
  }
  float* floats() { return reinterpret_cast<float*>(first); }
  std::vector<unsigned char> bytes;
  unsigned char* first;
};

struct Case {
  Rule rule;
  GradientType type;
  Terms terms;
  std::size_t elements, offset[6];
  unsigned count;
  std::size_t past_cache;
  std::uint32_t seed;
};

Case random_case(Random& random, std::size_t elements) {
  Case c{.rule = kRules[up_to(random, 4)],
         .type = kTypes[up_to(random, 2)],
         .terms = {.rate = 0.01,
                   .beta1 = 0.3 * up_to(random, 3),
                   .beta2 = 0.99,
                   .epsilon = 1e-8,
                   .weight_decay = 0.1 * up_to(random, 1),
                   .decoupled = up_to(random, 1) == 1,
                   .nesterov = up_to(random, 1) == 1,
                   .scale = 1.0 / (1 + up_to(random, 2)),
                   .clip_value = 0.5 * up_to(random, 1),
                   .step = 1 + up_to(random, 1000)},
         .elements = elements,
         .offset = {},
         .count = 1 + up_to(random, 2),
         .past_cache = up_to(random, 1) == 0 ? 0 : SIZE_MAX,
         .seed = static_cast<std::uint32_t>(random())};
  const std::size_t together = 4 * up_to(random, 15);
  for (std::size_t& offset : c.offset)
    offset = up_to(random, 3) == 0 ? 4 * up_to(random, 15) : together;
  return c;
}

/// The new arrays with what is around them, weights first, as one instruction set computes them.
std::vector<std::vector<unsigned char>> computed(const Case& c, InstructionSet set) {
  Random random(c.seed);
  const auto fill = [&](Numbers& numbers) {
    for (std::size_t i = 0; i < c.elements; ++i) {
      const std::uint32_t bits = float_bits(random);
      std::memcpy(numbers.first + 4 * i, &bits, 4);
    }
  };
  Numbers weights(c.elements, c.offset[0]),
      old[] = {{c.elements, c.offset[1]}, {c.elements, c.offset[2]}};
  fill(weights);
  for (Numbers& state : old) fill(state);
  std::vector<Numbers> gradients;
  std::vector<const void*> first;
  for (unsigned k = 0; k < c.count; ++k) {
    gradients.emplace_back(c.elements, c.type == GradientType::f32 ? 4 * k : 2 * k);
    fill(gradients.back());
    first.push_back(gradients.back().first);
  }
  Numbers made[] = {
      {c.elements, c.offset[3]}, {c.elements, c.offset[4]}, {c.elements, c.offset[5]}};
  for (Numbers& numbers : made)
    for (std::size_t i = 0; i < c.elements + 2 * kGuard; ++i)
      numbers.floats()[i - kGuard] = kUntouched;
  const Arrays arrays{.weights = weights.floats(),
                      .state = {old[0].floats(), old[1].floats()},
                      .gradients = first.data(),
                      .count = c.count,
                      .new_weights = made[0].floats(),
                      .new_state = {made[1].floats(), made[2].floats()},
                      .past_cache = c.past_cache};
  choose(c.rule, c.type, set)(factors_of(c.rule, c.terms), arrays, c.elements);
  std::vector<std::vector<unsigned char>> result;
  for (Numbers& numbers : made) {
    const unsigned char* begin = numbers.first - 4 * kGuard;
    result.emplace_back(begin, begin + 4 * (c.elements + 2 * kGuard));
  }
  return result;
}

float at(const std::vector<unsigned char>& bytes, std::size_t i) {
  float value = 0;
  std::memcpy(&value, bytes.data() + 4 * i, 4);
  return value;
}

/// That nothing else was written, and that a NaN is the one NaN.
void check_arrays(const Case& c, const std::vector<std::vector<unsigned char>>& arrays) {
  for (unsigned k = 0; k < arrays.size(); ++k)
    for (std::size_t i = 0; i < c.elements + 2 * kGuard; ++i) {
      const float value = at(arrays[k], i);
      const bool outside = i < kGuard || i >= c.elements + kGuard || k > states_of(c.rule, c.terms);
      cr_assert(!outside || value == kUntouched, "element %zu of array %u was written", i, k);
      cr_assert(!std::isnan(value) || std::bit_cast<std::uint32_t>(value) == kNan);
    }
}

/// One weight after one step, and the state, by the fastest set.
struct Single {
  float weight, state[2];
};

Single step(Rule rule, const Terms& terms, Single from, std::vector<float> gradients) {
  std::vector<const void*> each;
  for (const float& gradient : gradients) each.push_back(&gradient);
  Single to{};
  const Arrays a{.weights = &from.weight,
                 .state = {&from.state[0], &from.state[1]},
                 .gradients = each.data(),
                 .count = static_cast<unsigned>(each.size()),
                 .new_weights = &to.weight,
                 .new_state = {&to.state[0], &to.state[1]}};
  choose(rule, GradientType::f32)(factors_of(rule, terms), a, 1);
  return to;
}

bool near(double a, double b) { return std::abs(a - b) < 1e-6; }

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction > 0 ? NAN : sign * INFINITY;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

std::vector<InstructionSet> sets_here() {
  std::vector<InstructionSet> sets{InstructionSet::scalar};
  for (const auto set : kVectors)
    if (runs_here(set)) sets.push_back(set);
  return sets;
}

}  // namespace

Test(rule, are_what_the_formulas_say) {
  const Terms terms{.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.25};
  cr_expect(near(step(Rule::sgd, terms, {2, {}}, {4}).weight, 1.6));
  Single after = step(Rule::momentum, terms, {2, {3}}, {4});
  cr_expect(near(after.weight, 2 - 0.1 * 5.5) && near(after.state[0], 5.5));
  after = step(Rule::adagrad, terms, {2, {9}}, {4});
  cr_expect(near(after.weight, 2 - 0.1 * 4 / 5.25) && near(after.state[0], 25));
  after = step(Rule::rmsprop, {.rate = 0.1, .beta2 = 0.75, .epsilon = 0.25}, {2, {16}}, {4});
  cr_expect(near(after.weight, 2 - 0.1 * 4 / 4.25) && near(after.state[0], 16));
  after = step(Rule::rmsprop, terms, {2, {16, 3}}, {4});
  cr_expect(near(after.weight, 2 - 0.1 * (1.5 + 4 / 4.25)) && near(after.state[1], 1.5 + 4 / 4.25));
  Terms second = terms;
  second.step = 2;
  after = step(Rule::adam, second, {2, {3, 16}}, {4});
  const double adam = 3.5 / 0.75 / (4 / std::sqrt(1 - 0.5625) + 0.25);
  cr_expect(near(after.weight, 2 - 0.1 * adam));
  cr_expect(near(after.state[0], 3.5) && near(after.state[1], 16));
}

Test(rule, takes_options_in_torch_s_order) {
  const Single two{2, {3}};
  // Summed, then scaled, then clipped, then decayed.
  Terms terms{.rate = 0.1, .weight_decay = 0.5, .scale = 0.5, .clip_value = 3};
  cr_expect(near(step(Rule::sgd, terms, two, {4, 1, 9}).weight, 2 - 0.1 * (3 + 1)));
  cr_expect(near(step(Rule::sgd, terms, two, {-4, 1, -9}).weight, 2 - 0.1 * (-3 + 1)));
  terms.clip_value = 0;
  cr_expect(near(step(Rule::sgd, terms, two, {4, 1, 9}).weight, 2 - 0.1 * (7 + 1)));
  terms.decoupled = true;
  cr_expect(near(step(Rule::sgd, terms, two, {4, 1, 9}).weight, 2 * 0.95 - 0.1 * 7));
  terms = {.rate = 0.1, .beta1 = 0.5, .nesterov = true};
  const Single after = step(Rule::momentum, terms, two, {4});
  cr_expect(near(after.weight, 2 - 0.1 * (4 + 0.5 * 5.5)) && near(after.state[0], 5.5));
  // In this order only: the large ones cancel first.
  cr_expect(step(Rule::sgd, {.rate = 1}, two, {1e30f, -1e30f, 1}).weight == 1);
}

Test(rule, gives_the_same_bits_with_each_instruction_set) {
  Random random(1);
  int compared = 0;
  for (std::size_t elements = 0; elements <= 300; ++elements)
    for (int i = 0; i < 30; ++i) {
      const Case c = random_case(random, elements);
      const auto expected = computed(c, InstructionSet::scalar);
      check_arrays(c, expected);
      for (const auto set : sets_here()) {
        cr_assert(computed(c, set) == expected,
                  "set %d, rule %d, gradients %d, %zu elements, seed %u: other bits",
                  static_cast<int>(set), static_cast<int>(c.rule), static_cast<int>(c.type),
                  elements, c.seed);
        ++compared;
      }
    }
  cr_assert(compared >= 301 * 30);
}

Test(rule, converts_each_gradient_of_16_bits_exactly) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> zeros(all.size());
  std::vector<float> made(all.size());
  const void* gradient = all.data();
  const Arrays a{.weights = zeros.data(), .gradients = &gradient, .new_weights = made.data()};
  for (const auto set : sets_here())
    for (const auto type : {GradientType::bf16, GradientType::f16}) {
      choose(Rule::sgd, type, set)(factors_of(Rule::sgd, {.rate = -1}), a, all.size());
      for (std::uint32_t i = 0; i < all.size(); ++i) {
        const double wanted =
            type == GradientType::f16 ? half_value(all[i]) : std::bit_cast<float>(i << 16);
        cr_assert(made[i] == wanted || (std::isnan(made[i]) && std::isnan(wanted)),
                  "set %d: %04x became %g", static_cast<int>(set), i, made[i]);
      }
    }
}

Test(rule, may_write_to_its_old_arrays) {
  for (const auto set : sets_here())
    for (const std::size_t past : {std::size_t{0}, SIZE_MAX}) {
      std::vector<float> weights(333, 2), first(333, 3), second(333, 16);
      const std::vector<float> gradient(333, 4);
      const void* gradients[] = {gradient.data()};
      const Arrays a{.weights = weights.data(),
                     .state = {first.data(), second.data()},
                     .gradients = gradients,
                     .new_weights = weights.data(),
                     .new_state = {first.data(), second.data()},
                     .past_cache = past};
      const Terms terms{.rate = 0.1, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.25};
      choose(Rule::adam, GradientType::f32, set)(factors_of(Rule::adam, terms), a, 333);
      const Single single = step(Rule::adam, terms, {2, {3, 16}}, {4});
      for (std::size_t i = 0; i < 333; ++i)
        cr_assert(weights[i] == single.weight && first[i] == single.state[0] &&
                  second[i] == single.state[1]);
    }
}

Test(rule, sums_squares_in_one_order) {
  Random random(3);
  for (std::size_t elements = 0; elements <= 300; ++elements)
    for (const auto type : kTypes)
      for (const bool wild : {false, true}) {
        const unsigned count = 1 + up_to(random, 2);
        std::vector<std::vector<float>> gradients(count, std::vector<float>(elements));
        std::vector<const void*> first;
        for (auto& gradient : gradients) {
          for (float& x : gradient)
            x = wild ? std::bit_cast<float>(float_bits(random))
                     : static_cast<float>(up_to(random, 2000)) / 256 - 4;
          first.push_back(gradient.data());
        }
        const double expected =
            choose_squares(type, InstructionSet::scalar)(first.data(), count, elements);
        for (const auto set : sets_here()) {
          const double sum = choose_squares(type, set)(first.data(), count, elements);
          cr_assert(std::memcmp(&sum, &expected, sizeof sum) == 0, "%zu elements: %a, not %a",
                    elements, sum, expected);
        }
        double plain = 0;
        for (std::size_t i = 0; type == GradientType::f32 && i < elements; ++i) {
          float x = 0;
          for (const auto& gradient : gradients) x += gradient[i];
          plain += static_cast<double>(x) * x;
        }
        cr_assert(wild || type != GradientType::f32 || std::abs(plain - expected) <= 1e-12 * plain);
      }
  const float largest = std::numeric_limits<float>::max();
  const void* one = &largest;
  cr_expect(choose_squares(GradientType::f32)(&one, 1, 1) ==
            static_cast<double>(largest) * largest);
}

Test(rule, clips_by_norm) {
  cr_expect(norm_scale(0.5, 1) == 1 && norm_scale(0, 1) == 1);
  cr_expect(near(norm_scale(5, 1), 0.2));
  cr_expect(norm_scale(5, 5) < 1, "torch adds 1e-6 to the norm");
}
