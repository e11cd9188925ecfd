// SPDX-License-Identifier: Apache-2.0
// How long the rules of the parameter server take in one thread. Prints lines of JSON.
//
//   rule_bench limit RULE GRADIENT KIB REPEATS    seconds of the rule, and of moving as many bytes
//   rule_bench stores RULE GRADIENT KIB REPEATS   seconds of the rule alone and with a reading of
//                                                 its new weights, stored through the cache or past
//
// KIB: of the weights. All memory has been written before. What moves as many bytes reads as many
// arrays and writes as many past the cache; one line of each at a time, or four, whichever is
// faster.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "paramserver/rule/rule.h"
#include "tests/bench/timed.h"

using namespace bellows::ps;

namespace {

const std::map<std::string, Rule> kRules = {{"sgd", Rule::sgd},
                                            {"momentum", Rule::momentum},
                                            {"adagrad", Rule::adagrad},
                                            {"adam", Rule::adam},
                                            {"rmsprop", Rule::rmsprop}};
const std::map<std::string, GradientType> kTypes = {
    {"f32", GradientType::f32}, {"bf16", GradientType::bf16}, {"f16", GradientType::f16}};

[[noreturn]] void fail(const char* what) {
  fmt::print(stderr, "rule_bench: {}\n", what);
  std::exit(2);
}

/// Memory of its own pages, filled, which lasts as long as the program.
float* filled(std::size_t bytes, std::uint32_t pattern) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("there is no memory");
  std::fill_n(static_cast<std::uint32_t*>(memory), bytes / 4, pattern);
  return static_cast<float*>(memory);
}

/// One rule and all that it reads and writes.
struct Problem {
  Problem(const std::string& rule_name, const std::string& type_name, std::size_t bytes)
      : rule(kRules.at(rule_name)), type(kTypes.at(type_name)), elements(bytes / 4) {
    gradient_bytes = type == GradientType::f32 ? bytes : bytes / 2;
    if (rule == Rule::rmsprop) terms.beta1 = 0;
    states = states_of(rule, terms);
    gradient = filled(gradient_bytes, type == GradientType::f32 ? 0x3c23d70a : 0x3c003c00);
    arrays.weights = filled(bytes, 0x3f800000);
    arrays.new_weights = filled(bytes, 0);
    arrays.gradients = &gradient;
    for (unsigned i = 0; i < states; ++i) {
      arrays.state[i] = filled(bytes, 0x3f000000);
      arrays.new_state[i] = filled(bytes, 0);
    }
  }
  double rule_seconds() const {
    const Factors factors = factors_of(rule, terms);
    const Apply apply = choose(rule, type);
    return timed([&] { apply(factors, arrays, elements); });
  }

  Rule rule;
  GradientType type;
  std::size_t elements, gradient_bytes = 0;
  unsigned states = 0;
  Terms terms{.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1000};
  const void* gradient = nullptr;
  Arrays arrays;
};

/// What has the fewest instructions for as many bytes: each new array is an old one, the weights
/// mixed with the gradient. `lines`: how many of each array are read before any is written.
template <unsigned states, std::size_t lines>
void move_narrow(const Problem& p) {
  constexpr std::size_t kVectors = lines * 64 / sizeof(__m128i);
  const unsigned shift = p.type == GradientType::f32 ? 0 : 1;
  const auto from = [](const void* array, std::size_t i) {
    return _mm_load_si128(static_cast<const __m128i*>(array) + i);
  };
  const auto to = [](float* array, std::size_t i, __m128i value) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(array) + i, value);
  };
  for (std::size_t i = 0; i < p.elements / 4; i += kVectors) {
    __m128i mixed[kVectors], state[2][kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) {
      mixed[k] = _mm_xor_si128(from(p.arrays.weights, i + k), from(p.gradient, (i + k) >> shift));
      for (unsigned s = 0; s < states; ++s) state[s][k] = from(p.arrays.state[s], i + k);
    }
    for (unsigned s = 0; s < states; ++s)
      for (std::size_t k = 0; k < kVectors; ++k) to(p.arrays.new_state[s], i + k, state[s][k]);
    for (std::size_t k = 0; k < kVectors; ++k) to(p.arrays.new_weights, i + k, mixed[k]);
  }
  _mm_sfence();
}

/// The same with a line in each instruction.
template <unsigned states, std::size_t lines>
[[gnu::target("avx512f")]] void move_wide(const Problem& p) {
  const unsigned shift = p.type == GradientType::f32 ? 0 : 1;
  const auto* weights = reinterpret_cast<const __m512i*>(p.arrays.weights);
  const auto* gradient = static_cast<const __m512i*>(p.gradient);
  for (std::size_t i = 0; i < p.elements / 16; i += lines) {
    __m512i mixed[lines], state[2][lines];
    for (std::size_t k = 0; k < lines; ++k) {
      mixed[k] = _mm512_xor_si512(_mm512_load_si512(weights + i + k),
                                  _mm512_load_si512(gradient + ((i + k) >> shift)));
      for (unsigned s = 0; s < states; ++s)
        state[s][k] = _mm512_load_si512(p.arrays.state[s] + 16 * (i + k));
    }
    for (unsigned s = 0; s < states; ++s)
      for (std::size_t k = 0; k < lines; ++k)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(p.arrays.new_state[s]) + i + k, state[s][k]);
    for (std::size_t k = 0; k < lines; ++k)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(p.arrays.new_weights) + i + k, mixed[k]);
  }
  _mm_sfence();
}

using Move = void (*)(const Problem&);

template <unsigned states>
std::vector<Move> moves() {
  std::vector<Move> all{move_narrow<states, 1>, move_narrow<states, 4>};
  if (runs_here(InstructionSet::avx512))
    all.insert(all.end(), {move_wide<states, 1>, move_wide<states, 4>});
  return all;
}

/// Chosen once: the smallest of several times would be less than one time, on a busy machine.
Move fastest_move(const Problem& p) {
  std::map<double, Move> by_seconds;
  for (int i = 0; i < 4; ++i)
    for (const Move move : p.states == 0 ? moves<0>() : p.states == 1 ? moves<1>() : moves<2>())
      by_seconds[timed([&] { move(p); })] = move;
  return by_seconds.begin()->second;
}

void print(const std::map<std::string, std::vector<double>>& took) {
  std::vector<std::string> members;
  for (const auto& [name, seconds] : took)
    members.push_back(fmt::format("\"{}\": [{}]", name, fmt::join(seconds, ", ")));
  fmt::print("{{{}}}\n", fmt::join(members, ", "));
}

void against_limit(const Problem& p, int repeats) {
  std::map<std::string, std::vector<double>> took;
  const Move move = fastest_move(p);
  p.rule_seconds();
  for (int i = 0; i < repeats; ++i) {
    took["rule"].push_back(p.rule_seconds());
    took["move"].push_back(timed([&] { move(p); }));
  }
  print(took);
}

/// A learner's next step.
float read(const Problem& p) {
  __m128 sum = _mm_setzero_ps();
  for (std::size_t i = 0; i < p.elements; i += 4)
    sum = _mm_add_ps(sum, _mm_load_ps(p.arrays.new_weights + i));
  return _mm_cvtss_f32(sum);
}

/// Updates as a server makes them: each into the buffer that was left longest ago.
void stores(Problem& p, int repeats) {
  std::map<std::string, std::vector<double>> took;
  float* buffers[] = {const_cast<float*>(p.arrays.weights), p.arrays.new_weights,
                      filled(4 * p.elements, 0), filled(4 * p.elements, 0)};
  volatile float used = 0;
  for (const bool past : {false, true}) {
    p.arrays.past_cache = past ? 0 : SIZE_MAX;
    for (int i = 0; i < repeats + 4; ++i) {
      p.arrays.weights = buffers[i % 4];
      p.arrays.new_weights = buffers[(i + 1) % 4];
      for (unsigned k = 0; k < p.states; ++k)
        p.arrays.new_state[k] = const_cast<float*>(
            std::exchange(p.arrays.state[k], static_cast<const float*>(p.arrays.new_state[k])));
      const double rule = p.rule_seconds();
      const double then = timed([&] { used = read(p); });
      if (i < 4) continue;
      took[past ? "past" : "through"].push_back(rule + then);
      took[past ? "past_alone" : "through_alone"].push_back(rule);
    }
  }
  print(took);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 5 || !kRules.contains(words[1]) || !kTypes.contains(words[2]))
    fail("usage: rule_bench limit|stores RULE GRADIENT KIB REPEATS");
  const std::size_t kib = std::strtoul(words[3].c_str(), nullptr, 10);
  const int repeats = std::atoi(words[4].c_str());
  if (kib == 0 || repeats < 1) fail("KIB and REPEATS are numbers");
  Problem problem(words[1], words[2], kib << 10);
  if (words[0] == "limit")
    against_limit(problem, repeats);
  else
    stores(problem, repeats);
}
