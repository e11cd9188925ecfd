// SPDX-License-Identifier: Apache-2.0
#include "paramserver/rule/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <new>
#include <utility>

namespace bellows::ps {
namespace {

/// Entries for which a list has room at first.
constexpr std::size_t kFirstRoom = 1 << 16;

}  // namespace

// Entry by entry: a list of nonsense ends at once, however long it says that it is.
Result<RowList> RowList::of(std::span<const std::uint64_t> claimed, std::uint64_t matrix_rows) try {
  RowList list;
  list.rows_.reserve(std::min(claimed.size(), kFirstRoom));
  for (std::size_t i = 0; i < claimed.size(); ++i) {
    const std::uint64_t row = __atomic_load_n(&claimed[i], __ATOMIC_RELAXED);
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
    list.rows_.push_back(row);
  }
  return list;
} catch (const std::bad_alloc&) {
  return Error{ErrorKind::unavailable,
               fmt::format("there is no memory to copy {} rows of a gradient; push fewer of them",
                           claimed.size())};
}

RowList RowList::united(std::span<const RowList> lists) {
  RowList all;
  for (const RowList& list : lists) {
    std::vector<std::uint64_t> both;
    std::set_union(all.rows_.begin(), all.rows_.end(), list.rows_.begin(), list.rows_.end(),
                   std::back_inserter(both));
    all.rows_ = std::move(both);
  }
  return all;
}

Factors row_factors_of(Rule rule, const Terms& terms) {
  Terms sparse = terms;
  if (rule == Rule::adam)
    sparse.epsilon /= std::sqrt(1 - std::pow(terms.beta2, static_cast<double>(terms.step)));
  return factors_of(rule, sparse);
}

RowList apply_rows(Apply apply, const Factors& factors, GradientType type, const Arrays& matrix,
                   std::span<const RowList> lists, std::size_t width) {
  const std::size_t row_bytes = width * (type == GradientType::f32 ? 4 : 2);
  std::vector<std::size_t> done(lists.size());
  std::vector<const void*> gradients;
  Arrays row = matrix;
  RowList changed = RowList::united(lists);
  for (const std::uint64_t number : changed.rows()) {
    gradients.clear();
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const auto rows = lists[i].rows();
      if (done[i] == rows.size() || rows[done[i]] != number) continue;
      gradients.push_back(static_cast<const std::byte*>(matrix.gradients[i]) +
                          done[i]++ * row_bytes);
    }
    row.gradients = gradients.data();
    row.count = static_cast<unsigned>(gradients.size());
    const std::size_t at = number * width;
    row.weights = matrix.weights + at;
    row.new_weights = matrix.new_weights + at;
    for (int i = 0; i < 2; ++i) {
      if (matrix.state[i]) row.state[i] = matrix.state[i] + at;
      if (matrix.new_state[i]) row.new_state[i] = matrix.new_state[i] + at;
    }
    apply(factors, row, width);
  }
  return changed;
}

}  // namespace bellows::ps
