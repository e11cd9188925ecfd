// SPDX-License-Identifier: Apache-2.0
#include "pool/simulate/number_file.h"

#include <fmt/core.h>

#include <charconv>

#include "common/fd.h"
#include "common/text.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostBytes = 16 << 20;
constexpr double kLargest = 1e9;

}  // namespace

Result<std::vector<double>> parse_numbers(std::string_view text, const std::string& file,
                                          std::size_t most) {
  std::vector<double> numbers;
  std::size_t line = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++line;
    const std::string_view word = trim(raw);
    if (word.empty() || word.starts_with('#')) continue;
    double number = -1;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
    // Also false for what is not a number.
    const bool fits = number >= 0 && number <= kLargest;
    if (failure != std::errc() || end != word.data() + word.size() || !fits)
      return Error{ErrorKind::invalid, fmt::format("{}:{}: \"{}\" is not a number from 0 to {:g}",
                                                   file, line, one_line(word, 40), kLargest)};
    if (numbers.size() == most)
      return Error{ErrorKind::invalid, fmt::format("{} has more than {} numbers", file, most)};
    numbers.push_back(number);
  }
  if (numbers.empty())
    return Error{ErrorKind::invalid, file + " has no numbers: it must have one a line"};
  return numbers;
}

Result<std::vector<double>> read_numbers(const std::string& file, std::size_t most) {
  const auto text = read_file(file, kMostBytes);
  if (!text) return text.error();
  return parse_numbers(*text, file, most);
}

}  // namespace bellows::pool
