// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/csv.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/fd.h"
#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 28;

}  // namespace

Result<Csv> Csv::read(const std::filesystem::path& path) {
  const auto text = read_file(path.string(), kMostBytes);
  if (!text) return text.error();
  return parse(*text, path.string());
}

Result<Csv> Csv::parse(std::string_view text, std::string name, const CsvForm& form) {
  Csv csv;
  csv.name_ = std::move(name);
  std::size_t number = 0;
  for (const std::string_view whole_line : split(text, '\n')) {
    ++number;
    const std::string_view line = trim(whole_line);
    if (line.empty()) continue;
    std::vector<std::string> cells;
    const char* last = line.data();
    for (const std::string_view cell : split(line, form.separator)) {
      if (form.last_is_rest && !cells.empty() && cells.size() == csv.titles_.size()) {
        cells.back() = trim(line.substr(static_cast<std::size_t>(last - line.data())));
        break;
      }
      last = cell.data();
      cells.emplace_back(trim(cell));
    }
    if (csv.titles_.empty()) {
      csv.titles_ = std::move(cells);
      continue;
    }
    if (cells.size() != csv.titles_.size())
      return csv.error_in(number, fmt::format("there are {} cells under {} titles", cells.size(),
                                              csv.titles_.size()));
    csv.cells_.push_back(std::move(cells));
    csv.lines_.push_back(number);
  }
  return csv;
}

Result<std::size_t> Csv::column(std::string_view title) const {
  const auto at = std::find(titles_.begin(), titles_.end(), title);
  if (at == titles_.end())
    return Error{ErrorKind::invalid, fmt::format("{} has no column \"{}\"", name_, title)};
  return static_cast<std::size_t>(at - titles_.begin());
}

Result<double> Csv::number(std::size_t row, std::size_t column, double least) const {
  const std::string& cell = text(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() || !std::isfinite(value) ||
      value < least)
    return error_at(row, fmt::format("\"{}\" of {} must be a number of at least {}",
                                     one_line(cell, 40), titles_[column], least));
  return value;
}

Result<std::uint32_t> Csv::whole(std::size_t row, std::size_t column, std::uint32_t least) const {
  const auto value = parse_uint(text(row, column));
  if (!value || *value < least || *value > UINT32_MAX)
    return error_at(row, fmt::format("\"{}\" of {} must be a whole number of at least {}",
                                     one_line(text(row, column), 40), titles_[column], least));
  return static_cast<std::uint32_t>(*value);
}

Error Csv::error_at(std::size_t row, std::string_view what) const {
  return error_in(lines_[row], what);
}

Error Csv::error_in(std::size_t line, std::string_view what) const {
  return {ErrorKind::invalid, fmt::format("{}, line {}: {}", name_, line, what)};
}

}  // namespace bellows
