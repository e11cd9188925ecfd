// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/shard_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace bellows::ps {
namespace {

/// In bytes, without its rows: what an entry of a log takes.
constexpr std::uint64_t kEntry = 64;
/// A log takes at most so little of its matrix's memory, or so much if that is less.
constexpr std::uint64_t kShare = 8;
constexpr std::uint64_t kSmallLog = 4096;

std::optional<std::uint64_t> held(const std::map<std::uint32_t, std::uint64_t>& versions,
                                  std::uint32_t copy) {
  const auto found = versions.find(copy);
  return found == versions.end() ? std::nullopt : std::optional(found->second);
}

/// A learner may write to it meanwhile, so each number is read once.
Result<RowList> read_rows(const std::uint64_t* words, std::uint64_t matrix_rows) {
  const std::uint64_t count = __atomic_load_n(words, __ATOMIC_RELAXED);
  if (count > matrix_rows)
    return Error{
        ErrorKind::invalid,
        fmt::format("a gradient has {} rows, but the matrix has {} of them", count, matrix_rows)};
  return RowList::of({words + 1, count}, matrix_rows);
}

}  // namespace

void RowLog::begin(std::uint64_t version) {
  entries_.clear();
  changed_ = 0;
  known_after_ = version;
}

// Beyond that a copy of all rows costs less.
bool RowLog::is_too_long() const {
  const std::uint64_t bytes = changed_ * sizeof(std::uint64_t) + entries_.size() * kEntry;
  return changed_ > rows_ || bytes > std::max(kSmallLog, rows_ * width_ * sizeof(float) / kShare);
}

void RowLog::add(std::uint64_t version, RowList changed) {
  if (changed.rows().empty()) return;
  changed_ += changed.rows().size();
  entries_.push_back({version, std::move(changed)});
  while (!entries_.empty() && is_too_long()) {
    known_after_ = entries_.front().version;
    changed_ -= entries_.front().changed.rows().size();
    entries_.pop_front();
  }
}

void RowLog::bring_forward(std::optional<std::uint64_t> holds, const float* newest,
                           float* copy) const {
  if (!holds || *holds < known_after_) {
    std::copy_n(newest, rows_ * width_, copy);
    return;
  }
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->version > *holds; ++entry)
    for (const std::uint64_t row : entry->changed.rows())
      std::copy_n(newest + row * width_, width_, copy + row * width_);
}

ShardRows::ShardRows(const std::vector<GroupRange>& ranges) {
  for (const GroupRange& range : ranges)
    if (range.width > 0)
      matrices_.push_back({range, RowLog(range.count / range.width, range.width), {}});
}

std::optional<Nonsense> ShardRows::read(const ShardUpdate& update) {
  for (Matrix& matrix : matrices_) {
    matrix.lists.clear();
    for (std::size_t i = 0; i < update.rows.size(); ++i) {
      auto list =
          read_rows(update.rows[i] + matrix.range.rows_at, matrix.range.count / matrix.range.width);
      if (!list) return Nonsense{i, list.error().text};
      matrix.lists.push_back(std::move(*list));
    }
  }
  return std::nullopt;
}

/// The first update of a server, or one after a version that was not made here.
void ShardRows::forget_unless(std::uint64_t version, const ShardUpdate& update) {
  if (held(weights_hold_, update.from_buffer) == version &&
      held(states_hold_, update.from_state) == version)
    return;
  weights_hold_ = {{update.from_buffer, version}};
  states_hold_ = {{update.from_state, version}};
  for (Matrix& matrix : matrices_) matrix.log.begin(version);
}

void ShardRows::bring_forward(const ShardUpdate& update, std::uint32_t states) {
  if (matrices_.empty()) return;
  forget_unless(update.version - 1, update);
  for (const Matrix& matrix : matrices_) {
    const std::uint64_t at = matrix.range.begin;
    matrix.log.bring_forward(held(weights_hold_, update.to_buffer), update.weights + at,
                             update.new_weights + at);
    for (std::uint32_t i = 0; i < states; ++i)
      matrix.log.bring_forward(held(states_hold_, update.to_state), update.state[i] + at,
                               update.new_state[i] + at);
  }
  weights_hold_[update.to_buffer] = update.version;
  states_hold_[update.to_state] = update.version;
}

}  // namespace bellows::ps
