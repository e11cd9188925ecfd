// SPDX-License-Identifier: Apache-2.0
/// A table of measurements or submissions as anybody may have written it: every row has a cell for
/// each title, a cell is a number or an error that names its line, and what was read reads back.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "elastic/simulate/csv.h"

namespace {

using namespace bellows;

constexpr std::string_view kName = "a.csv";

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string_view> titles_of(std::string_view text) {
  for (const std::string_view line : split(text, '\n'))
    if (!trim(line).empty()) return split(trim(line), ',');
  return {};
}

/// An error says "a.csv, line N: ", where N is a line of the text with something in it.
void check_error(const Error& error, std::string_view text) {
  require(error.kind == ErrorKind::invalid);
  const std::string before = std::string(kName) + ", line ";
  const std::string_view said = error.text;
  require(said.starts_with(before));
  const std::string_view rest = said.substr(before.size());
  const auto number = parse_uint(rest.substr(0, rest.find(':')));
  const auto lines = split(text, '\n');
  require(number && *number >= 2 && *number <= lines.size());
  require(!trim(lines[*number - 1]).empty());
}

void check_cell(const Csv& csv, std::size_t row, std::size_t column, std::string_view text) {
  for (const double least : {-1e300, 0.0, 3.0}) {
    const auto number = csv.number(row, column, least);
    if (number)
      require(std::isfinite(*number) && *number >= least);
    else
      check_error(number.error(), text);
  }
  const auto whole = csv.whole(row, column, 1);
  if (!whole) return check_error(whole.error(), text);
  const auto number = csv.number(row, column, 1);
  require(*whole >= 1 && number && *number == *whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto csv = Csv::parse(text, std::string(kName));
  if (!csv) {
    check_error(csv.error(), text);
    return 0;
  }
  const auto titles = titles_of(text);
  std::string again;
  for (const std::string_view title : titles) {
    require(csv->column(trim(title)).ok());
    again.append(trim(title)).append(",");
  }
  for (std::size_t row = 0; row < csv->rows(); ++row) {
    again.back() = '\n';
    for (std::size_t column = 0; column < titles.size(); ++column) {
      check_cell(*csv, row, column, text);
      again.append(csv->text(row, column)).append(",");
    }
  }
  if (!again.empty()) again.back() = '\n';
  const auto back = Csv::parse(again, "b.csv");
  require(back.ok() && back->rows() == csv->rows());
  for (std::size_t row = 0; row < csv->rows(); ++row)
    for (std::size_t column = 0; column < titles.size(); ++column)
      require(back->text(row, column) == csv->text(row, column));
  return 0;
}
