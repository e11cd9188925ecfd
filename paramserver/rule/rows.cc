// SPDX-License-Identifier: Apache-2.0
#include "paramserver/rule/rows.h"

#include <fmt/core.h>

namespace bellows::ps {

Result<RowList> RowList::of(std::span<const std::uint64_t> claimed, std::uint64_t matrix_rows) {
  RowList list;
  list.rows_.assign(claimed.begin(), claimed.end());
  for (std::size_t i = 0; i < list.rows_.size(); ++i) {
    const std::uint64_t row = list.rows_[i];
    if (row >= matrix_rows)
      return Error{ErrorKind::invalid,
                   fmt::format("entry {} of the gradient's rows is {}, but the matrix has {} rows; "
                               "push only rows that are below that",
                               i, row, matrix_rows)};
    if (i > 0 && row <= list.rows_[i - 1])
      return Error{ErrorKind::invalid,
                   fmt::format("entry {} of the gradient's rows is {}, after {}; sort the rows and "
                               "sum those that are equal, as torch's coalesce() does",
                               i, row, list.rows_[i - 1])};
  }
  return list;
}

void apply_rows(Apply apply, const Factors& factors, GradientType type, const Arrays& matrix,
                const RowList& list, std::size_t width) {
  const std::size_t row_bytes = width * (type == GradientType::f32 ? 4 : 2);
  std::vector<const void*> gradients(matrix.gradients, matrix.gradients + matrix.count);
  Arrays row = matrix;
  row.gradients = gradients.data();
  for (const std::uint64_t number : list.rows()) {
    const std::size_t at = number * width;
    row.weights = matrix.weights + at;
    row.new_weights = matrix.new_weights + at;
    for (int i = 0; i < 2; ++i) {
      if (matrix.state[i]) row.state[i] = matrix.state[i] + at;
      if (matrix.new_state[i]) row.new_state[i] = matrix.new_state[i] + at;
    }
    apply(factors, row, width);
    for (const void*& gradient : gradients)
      gradient = static_cast<const std::byte*>(gradient) + row_bytes;
  }
}

}  // namespace bellows::ps
