// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

namespace bellows {

/// The numbers of enum bellows_dtype.
enum class Dtype : std::uint32_t {
  f16 = 1,
  bf16,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,
  c64,
  c128,
  bytes,
};

/// IEEE 754 binary16 and bfloat16: every value is a float.
float float_of_f16(std::uint16_t bits);
float float_of_bf16(std::uint16_t bits);

/// One element: a number, a truth value, [real, imaginary], or for an infinity or not-a-number
/// "Infinity", "-Infinity" or "NaN".
nlohmann::ordered_json json_of_element(Dtype dtype, const unsigned char* element);

/// Calls `with` with a function that reads one element as the type that holds all its values:
/// float, double, an integer, or std::complex of these. bool and bytes are read as std::uint8_t.
template <typename With>
auto with_reader(Dtype dtype, With with) {
  const auto plain = [&]<typename T>(T) {
    return with([](const unsigned char* from) {
      T value;
      std::memcpy(&value, from, sizeof value);
      return value;
    });
  };
  const auto half = [&](float (*convert)(std::uint16_t)) {
    return with([convert](const unsigned char* from) {
      std::uint16_t bits;
      std::memcpy(&bits, from, sizeof bits);
      return convert(bits);
    });
  };
  switch (dtype) {
    case Dtype::f16:
      return half(float_of_f16);
    case Dtype::bf16:
      return half(float_of_bf16);
    case Dtype::f32:
      return plain(float());
    case Dtype::f64:
      return plain(double());
    case Dtype::i8:
      return plain(std::int8_t());
    case Dtype::i16:
      return plain(std::int16_t());
    case Dtype::i32:
      return plain(std::int32_t());
    case Dtype::i64:
      return plain(std::int64_t());
    case Dtype::u16:
      return plain(std::uint16_t());
    case Dtype::u32:
      return plain(std::uint32_t());
    case Dtype::u64:
      return plain(std::uint64_t());
    case Dtype::c64:
      return plain(std::complex<float>());
    case Dtype::c128:
      return plain(std::complex<double>());
    case Dtype::u8:
    case Dtype::boolean:
    case Dtype::bytes:
      break;
  }
  return plain(std::uint8_t());
}

}  // namespace bellows
