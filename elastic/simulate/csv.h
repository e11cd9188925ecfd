// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// How a table is written.
struct CsvForm {
  char separator = ',';
  bool last_is_rest = false;  ///< the last cell of a line has what is left, separators included
};

/// A table of separated values with a line of titles, without quotes. A value type.
class Csv {
 public:
  /// invalid: a line has more or fewer cells than there are titles, or the file more than 256 MiB.
  /// not_found, denied, io: it can't be read.
  static Result<Csv> read(const std::filesystem::path& path);
  static Result<Csv> parse(std::string_view text, std::string name, const CsvForm& form = {});

  std::size_t rows() const { return cells_.size(); }
  /// The column of a title; invalid: there is none.
  Result<std::size_t> column(std::string_view title) const;
  /// Of several titles, in their order.
  template <std::size_t N>
  Result<std::array<std::size_t, N>> columns(const std::array<std::string_view, N>& titles) const {
    std::array<std::size_t, N> columns{};
    for (std::size_t i = 0; i < N; ++i) {
      const auto found = column(titles[i]);
      if (!found) return found.error();
      columns[i] = *found;
    }
    return columns;
  }
  const std::string& text(std::size_t row, std::size_t column) const { return cells_[row][column]; }
  /// A number of at least `least`; invalid: the cell has something else.
  Result<double> number(std::size_t row, std::size_t column, double least) const;
  /// Likewise, a whole one below 2^32.
  Result<std::uint32_t> whole(std::size_t row, std::size_t column, std::uint32_t least) const;
  /// "FILE, line N: WHAT".
  Error error_at(std::size_t row, std::string_view what) const;

 private:
  Error error_in(std::size_t line, std::string_view what) const;

  std::string name_;
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> cells_;
  std::vector<std::size_t> lines_;  ///< of each row in the file, from 1
};

}  // namespace bellows
