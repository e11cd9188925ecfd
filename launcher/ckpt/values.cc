// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/values.h"

#include <cmath>
#include <type_traits>

namespace bellows {
namespace {

using nlohmann::ordered_json;

template <typename T>
ordered_json json_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

template <typename T>
ordered_json json_of(std::complex<T> value) {
  return ordered_json::array({json_of(value.real()), json_of(value.imag())});
}

}  // namespace

float float_of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  float size;
  if (exponent == 0x1f) {
    size = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return bits & 0x8000 ? -size : size;
}

float float_of_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

ordered_json json_of_element(Dtype dtype, const unsigned char* element) {
  if (dtype == Dtype::boolean) return *element != 0;
  return with_reader(dtype, [&](auto read) { return json_of(read(element)); });
}

}  // namespace bellows
