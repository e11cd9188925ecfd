// SPDX-License-Identifier: Apache-2.0
// What each instruction set has besides vectors; included as kernel_body.h is, before it.

/// Sums of squares are kept in so many places: element i belongs to place i % kPlaces.
constexpr std::size_t kPlaces = 16;

constexpr std::uint32_t kQuietNan = 0x7fc00000;

/// One element at a time: what is before the first whole line of cache, and after the last vector.
struct One {
  using Vector = float;
  static constexpr std::size_t kWidth = 1;

  static Vector load(const float* from) { return *from; }
  static void store(float* to, Vector value) { *to = value; }
  static void stream(float* to, Vector value) { *to = value; }
  static Vector root(Vector value) { return __builtin_sqrtf(value); }
  // As the vector instructions: what is NaN remains so.
  static Vector clip(Vector value, float most) {
    const float below = most < value ? most : value;
    return -most > below ? -most : below;
  }
  static Vector settled(Vector value) {
    return value != value ? std::bit_cast<float>(kQuietNan) : value;
  }
  static Vector from_bf16(const std::uint16_t* from) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(*from) << 16);
  }
  // Moves the fraction into its place and corrects the exponent by a multiplication, which is exact
  // and makes numbers of 16 bits that are denormal into normal ones.
  static Vector from_f16(const std::uint16_t* from) {
    const std::uint32_t bits = *from, sign = (bits & 0x8000u) << 16;
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    if ((bits & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
  }
};
