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
  /// rows must ascend, as torch's coalesce() leaves them. invalid: they make no sense. unavailable:
  /// there is no memory for so many.
  static Result<RowList> of(std::span<const std::uint64_t> claimed, std::uint64_t matrix_rows);
  /// The rows that any of them has.
  static RowList united(std::span<const RowList> lists);

  std::span<const std::uint64_t> rows() const { return rows_; }

 private:
  std::vector<std::uint64_t> rows_;
};

/// As factors_of, for apply_rows: SparseAdam adds epsilon to a root that is not yet corrected for
/// its bias.
Factors row_factors_of(Rule rule, const Terms& terms);

/// Applies a rule to some rows of a matrix and leaves the others of the new arrays as they are.
/// Weights and state have all rows of `width` elements; each gradient has the rows of its list, one
/// after another. A row that several have is summed in their order. This is what torch's SGD,
/// Adagrad and SparseAdam do with a sparse gradient: rows that are in no list keep their state.
/// The rows that have changed.
RowList apply_rows(Apply apply, const Factors& factors, GradientType type, const Arrays& matrix,
                   std::span<const RowList> lists, std::size_t width);

}  // namespace bellows::ps
