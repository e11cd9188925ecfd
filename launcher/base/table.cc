// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/table.h"

#include <algorithm>
#include <numeric>

#include "launcher/base/terminal.h"

namespace bellows {
namespace {

/// The smallest width at which the last column is still useful.
constexpr std::size_t kLeastForLast = 34;

std::string padded(const std::string& cell, std::size_t width, bool to_the_right) {
  const std::string text = cut_to(cell, width);
  const std::string blanks(width - shown_width(text), ' ');
  return to_the_right ? blanks + text : text + blanks;
}

}  // namespace

std::string Table::text(std::size_t width) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t most = shown_width(columns_[i].title);
    for (const auto& row : rows_) most = std::max(most, shown_width(row[i]));
    if (columns_[i].most > 0) most = std::min(most, columns_[i].most);
    widths.push_back(most);
  }
  std::vector<std::size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), 0);
  // Of all shown but the last, with a blank behind each.
  const auto before_last = [&] {
    std::size_t sum = 0;
    for (std::size_t i = 0; i + 1 < shown.size(); ++i) sum += widths[shown[i]] + 1;
    return sum;
  };
  while (width > 0 && before_last() + std::min(widths.back(), kLeastForLast) > width) {
    const auto least = std::max_element(shown.begin(), shown.end(), [this](auto a, auto b) {
      return columns_[a].spared < columns_[b].spared;
    });
    if (columns_[*least].spared == 0) break;
    shown.erase(least);
  }
  const std::size_t before = before_last();
  if (width > 0 && !shown.empty())
    widths.back() = std::min(widths.back(), width > before ? width - before : 1);
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (std::size_t i : shown)
      line += padded(cell_of(i), widths[i], columns_[i].to_the_right) + ' ';
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  };
  add_line([this](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&row](std::size_t i) { return row[i]; });
  return out;
}

}  // namespace bellows
