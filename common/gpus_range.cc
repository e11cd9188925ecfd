// SPDX-License-Identifier: Apache-2.0
#include "common/gpus_range.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

Error bad_range(std::string_view text, std::string_view why) {
  return Error{
      ErrorKind::invalid,
      fmt::format("GPU range \"{}\": {}; write N, MIN-MAX, MIN-MAX:STEP or a list such as 1,2,4,8",
                  text.substr(0, 64), why)};
}

Result<std::uint32_t> parse_size(std::string_view whole, std::string_view piece) {
  const auto value = parse_uint(piece);
  if (!value) return bad_range(whole, fmt::format("\"{}\" is not a number", piece.substr(0, 32)));
  if (*value < 1 || *value > GpusRange::kMost)
    return bad_range(whole, fmt::format("{} is not between 1 and {}", *value, GpusRange::kMost));
  return static_cast<std::uint32_t>(*value);
}

Result<std::vector<std::uint32_t>> parse_list(std::string_view text) {
  std::vector<std::uint32_t> sizes;
  for (std::string_view piece : split(text, ',')) {
    auto size = parse_size(text, piece);
    if (!size) return size.error();
    if (!sizes.empty() && *size <= sizes.back())
      return bad_range(text, "the sizes in a list must ascend");
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace

GpusRange GpusRange::between(std::uint32_t first, std::uint32_t last, std::uint32_t step) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = first; size <= last; size += step) sizes.push_back(size);
  return GpusRange(std::move(sizes));
}

GpusRange GpusRange::none() { return GpusRange({0}); }

GpusRange GpusRange::of(std::vector<std::uint32_t> sizes) { return GpusRange(std::move(sizes)); }

Result<GpusRange> GpusRange::parse(std::string_view text) {
  if (text.size() > 1024) return bad_range(text, "it is too long");
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) {
    auto sizes = parse_list(text);
    if (!sizes) return sizes.error();
    return GpusRange(*std::move(sizes));
  }
  const auto colon = text.find(':', dash);
  auto first = parse_size(text, text.substr(0, dash));
  if (!first) return first.error();
  auto last = parse_size(
      text, text.substr(dash + 1, colon == std::string_view::npos ? colon : colon - dash - 1));
  if (!last) return last.error();
  if (*first > *last) return bad_range(text, fmt::format("{} is larger than {}", *first, *last));
  std::uint32_t step = 1;
  if (colon != std::string_view::npos) {
    auto parsed = parse_size(text, text.substr(colon + 1));
    if (!parsed) return parsed.error();
    step = *parsed;
  }
  return between(*first, *last, step);
}

bool GpusRange::contains(std::uint32_t size) const {
  return std::binary_search(sizes().begin(), sizes().end(), size);
}

std::uint32_t GpusRange::clamp(std::uint32_t size) const {
  const auto above = std::upper_bound(sizes().begin(), sizes().end(), size);
  return above == sizes().begin() ? min() : *std::prev(above);
}

std::string GpusRange::to_string() const {
  if (sizes().size() == 1) return fmt::format("{}", min());
  const std::uint32_t step = sizes()[1] - sizes()[0];
  for (std::size_t i = 1; i < sizes().size(); ++i)
    if (sizes()[i] - sizes()[i - 1] != step) return fmt::format("{}", fmt::join(sizes(), ","));
  if (step == 1) return fmt::format("{}-{}", min(), max());
  if (sizes().size() == 2) return fmt::format("{},{}", min(), max());
  return fmt::format("{}-{}:{}", min(), max(), step);
}

}  // namespace bellows
