// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

inline constexpr int kPixels = 64;
inline constexpr int kClasses = 10;

/// One handwritten digit. The id is its row in the file and travels with the pixels wherever they
/// go, so that what was trained on can be written down from what was trained on.
struct Sample {
  std::uint32_t id;
  std::uint8_t label;
  std::array<float, kPixels> pixels;  ///< 0 to 1
};

/// The data set, cut into two parts that never mix.
struct Dataset {
  std::vector<Sample> train;
  std::vector<Sample> test;
};

/// Reads digits.csv.gz: lines of 64 pixels (0..16) and a label. Throws std::runtime_error, naming
/// the file and line, for anything else.
std::vector<Sample> read_digits(const std::string& path);

/// Holds back one sample in five of each label. A function of the samples alone: the split is the
/// same in every run, at every size and with every seed.
Dataset split(const std::vector<Sample>& samples);

/// Where the data is when nobody says: $BELLOWS_DIGITS, build/data, or Debian's python3-sklearn.
std::string default_data_path();

}  // namespace digits
