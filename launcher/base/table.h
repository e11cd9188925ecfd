// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace bellows {

/// A table of text that fits a terminal: each column is as wide as its content, and the last one
/// takes the rest. If that is too little, columns are left out.
class Table {
 public:
  struct Column {
    std::string title;
    bool to_the_right = false;
    std::size_t most = 0;  ///< characters; 0: as many as there are
    int spared = 0;        ///< the largest number is left out first; 0: always shown
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// A cell for each column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// The lines, each with its newline. `width` 0: nothing limits them.
  std::string text(std::size_t width) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace bellows
