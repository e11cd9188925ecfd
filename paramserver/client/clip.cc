// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/clip.h"

#include <math.h>
#include <string.h>

namespace bellows::ps {
namespace {

float float_of(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct F32 {
  using Stored = float;
  static float load(Stored x) { return x; }
  static Stored store(float x) { return x; }
};

struct Bf16 {
  using Stored = std::uint16_t;
  static float load(Stored x) { return float_of(static_cast<std::uint32_t>(x) << 16); }
  // To the nearest, and to even between two.
  static Stored store(float x) {
    const std::uint32_t bits = bits_of(x);
    if (x != x) return static_cast<Stored>(bits >> 16 | 0x40);
    return static_cast<Stored>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

struct F16 {
  using Stored = std::uint16_t;
  static float load(Stored x) {
    _Float16 value;
    memcpy(&value, &x, sizeof value);
    return static_cast<float>(value);
  }
  static Stored store(float x) {
    const auto value = static_cast<_Float16>(x);
    Stored stored;
    memcpy(&stored, &value, sizeof stored);
    return stored;
  }
};

/// Several sums, which a processor adds at the same time.
constexpr std::uint64_t kSums = 16;

template <typename Type>
double square_of(const GradientPart& part) {
  const auto* data = reinterpret_cast<const typename Type::Stored*>(part.data);
  double sums[kSums] = {};
  std::uint64_t i = 0;
  for (; i + kSums <= part.count; i += kSums)
    for (std::uint64_t k = 0; k < kSums; ++k) {
      const double x = Type::load(data[i + k]);
      sums[k] += x * x;
    }
  double sum = 0;
  for (; i < part.count; ++i) {
    const double x = Type::load(data[i]);
    sum += x * x;
  }
  for (const double each : sums) sum += each;
  return sum;
}

template <typename Type>
void scale(const GradientPart& part, float factor) {
  auto* data = reinterpret_cast<typename Type::Stored*>(part.data);
  for (std::uint64_t i = 0; i < part.count; ++i)
    data[i] = Type::store(Type::load(data[i]) * factor);
}

template <typename Type>
double clip(const GradientPart* parts, std::size_t number, double most) {
  double square = 0;
  for (std::size_t i = 0; i < number; ++i) square += square_of<Type>(parts[i]);
  const double norm = sqrt(square);
  const double factor = most / (norm + 1e-6);
  // A norm that is no number makes all of them none, as in torch.
  if (factor >= 1) return norm;
  for (std::size_t i = 0; i < number; ++i) scale<Type>(parts[i], static_cast<float>(factor));
  return norm;
}

}  // namespace

double clip_norm(const GradientPart* parts, std::size_t number, ElementType type, double most) {
  switch (type) {
    case ElementType::bf16:
      return clip<Bf16>(parts, number, most);
    case ElementType::f16:
      return clip<F16>(parts, number, most);
    case ElementType::f32:
      break;
  }
  return clip<F32>(parts, number, most);
}

}  // namespace bellows::ps
