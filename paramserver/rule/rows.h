// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/result.h"
#include "paramserver/rule/rule.h"

namespace bellows::ps {

/// Rows of a matrix, each at most once and all within it: what a sparse gradient may name.
class RowList {
 public:
  /// A copy of what somebody claims, who may change it at any time, held against the matrix. The
  /// rows must ascend, as torch's coalesce() leaves them. Fails with ErrorKind::invalid.
  static Result<RowList> of(std::span<const std::uint64_t> claimed, std::uint64_t matrix_rows);

  std::span<const std::uint64_t> rows() const { return rows_; }

 private:
  std::vector<std::uint64_t> rows_;
};

/// Applies a rule to some rows of a matrix and leaves the others of the new arrays as they are.
/// Weights and state have all rows of `width` elements; gradients have the listed rows only, one
/// after another. This is what torch's SGD and Adagrad do with a sparse gradient, and what
/// SparseAdam does but for where it adds epsilon: rows that are not listed keep their state and do
/// not decay.
void apply_rows(Apply apply, const Factors& factors, GradientType type, const Arrays& matrix,
                const RowList& list, std::size_t width);

}  // namespace bellows::ps
