// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "paramserver/protocol/shard_steps.h"
#include "paramserver/rule/rows.h"
#include "paramserver/server/tensors.h"

namespace bellows::ps {

/// Which rows of a matrix recent versions have changed.
class RowLog {
 public:
  RowLog(std::uint64_t rows, std::uint64_t width) : rows_(rows), width_(width) {}

  /// What came before a version is not known.
  void begin(std::uint64_t version);
  /// A version that follows has changed these.
  void add(std::uint64_t version, RowList changed);
  /// Makes a copy of the matrix that holds a version the newest: by the rows that have changed
  /// since, or where that is not known, by all of them.
  void bring_forward(std::optional<std::uint64_t> holds, const float* newest, float* copy) const;

 private:
  struct Entry {
    std::uint64_t version;
    RowList changed;
  };
  bool is_too_long() const;

  std::uint64_t rows_;
  std::uint64_t width_;
  std::uint64_t known_after_ = 0;
  std::uint64_t changed_ = 0;  ///< rows, of all entries
  std::deque<Entry> entries_;
};

/// A shard's matrices whose gradients name rows. A version is written over an older one, which it
/// has to contain but for its rows. Which version that is nobody but this object remembers; it is
/// its thread's alone, and ends with the server.
class ShardRows {
 public:
  /// Of a shard's ranges those that are matrices.
  explicit ShardRows(const std::vector<GroupRange>& ranges);

  /// Copies from all gradients which rows they have. After an error nothing may be written.
  std::optional<Nonsense> read(const ShardUpdate& update);
  /// Makes what the new version is written over the old version, in its matrices.
  void bring_forward(const ShardUpdate& update, std::uint32_t states);
  /// Of a matrix, in the order of ranges, from each gradient.
  std::span<const RowList> lists(std::size_t matrix) const { return matrices_[matrix].lists; }
  /// What of a matrix the new version has changed.
  void add(std::size_t matrix, std::uint64_t version, RowList changed) {
    matrices_[matrix].log.add(version, std::move(changed));
  }

 private:
  struct Matrix {
    GroupRange range;
    RowLog log;
    std::vector<RowList> lists;
  };
  void forget_unless(std::uint64_t version, const ShardUpdate& update);

  std::vector<Matrix> matrices_;
  /// The version that a buffer, or a copy of the states, holds. Of others it is not known.
  std::map<std::uint32_t, std::uint64_t> weights_hold_;
  std::map<std::uint32_t, std::uint64_t> states_hold_;
};

}  // namespace bellows::ps
