// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "paramserver/wire/ps_wire.h"

namespace bellows::ps {

/// How tensors lie in shards: one after another, each at a multiple of kAlignElements.
struct TensorLayout {
  std::vector<std::uint64_t> begins;  ///< of each tensor, in elements
  std::vector<std::uint64_t> shards;  ///< elements of each shard
};

std::vector<std::uint64_t> counts_of(const std::vector<TensorSpec>& tensors);
/// Geometry::row_words.
std::uint64_t row_words_of(const std::vector<TensorSpec>& tensors);

/// A part of a shard: tensors of one group, or one matrix whose gradients name rows.
struct GroupRange {
  std::uint64_t begin = 0;  ///< in elements, from the shard's first
  std::uint64_t count = 0;
  std::uint32_t group = 0;
  std::uint64_t width = 0;    ///< of a matrix's row; 0: it is none
  std::uint64_t rows_at = 0;  ///< where gradients name its rows, of Geometry::row_words
};

/// What a shard is made of, one after another. Without a gap, but for the room behind a matrix.
std::vector<GroupRange> ranges_of(const std::vector<TensorSpec>& tensors,
                                  const TensorLayout& layout, std::uint32_t shard);

/// Of tensors of so many elements in at most so many shards of about the same size, none of which
/// divides a tensor. invalid: there are none, or they are too large.
Result<TensorLayout> lay_out_tensors(const std::vector<std::uint64_t>& counts,
                                     std::uint32_t shards);

}  // namespace bellows::ps
