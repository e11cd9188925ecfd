// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/tensors.h"

#include <fmt/core.h>

#include <algorithm>

#include "paramserver/memory/layout.h"

namespace bellows::ps {

std::vector<std::uint64_t> counts_of(const std::vector<TensorSpec>& tensors) {
  std::vector<std::uint64_t> counts;
  for (const TensorSpec& tensor : tensors) counts.push_back(tensor.count);
  return counts;
}

std::uint64_t row_words_of(const std::vector<TensorSpec>& tensors) {
  std::uint64_t words = 0;
  for (const TensorSpec& tensor : tensors) words += tensor.row_words();
  return words;
}

std::vector<GroupRange> ranges_of(const std::vector<TensorSpec>& tensors,
                                  const TensorLayout& layout, std::uint32_t shard) {
  std::uint64_t begin = 0;
  for (std::uint32_t s = 0; s < shard; ++s) begin += layout.shards[s];
  const std::uint64_t end = begin + layout.shards[shard];
  std::vector<GroupRange> ranges;
  std::uint64_t rows_at = 0;
  for (std::size_t i = 0; i < tensors.size(); rows_at += tensors[i].row_words(), ++i) {
    const TensorSpec& tensor = tensors[i];
    const std::uint64_t at = layout.begins[i];
    if (at < begin || at >= end) continue;
    if (tensor.width > 0) {
      ranges.push_back({at - begin, tensor.count, tensor.group, tensor.width, rows_at});
      continue;
    }
    // With the room up to the next one.
    const std::uint64_t next = i + 1 < tensors.size() ? std::min(layout.begins[i + 1], end) : end;
    if (!ranges.empty() && ranges.back().width == 0 && ranges.back().group == tensor.group)
      ranges.back().count += next - at;
    else
      ranges.push_back({at - begin, next - at, tensor.group});
  }
  return ranges;
}

Result<TensorLayout> lay_out_tensors(const std::vector<std::uint64_t>& counts,
                                     std::uint32_t shards) {
  TensorLayout layout;
  std::uint64_t end = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0 || count > kMostElements || end > kMostElements)
      return Error{ErrorKind::invalid, fmt::format("a tensor of {} elements: there may be 1 to {}",
                                                   count, kMostElements)};
    layout.begins.push_back(end);
    end += (count + kAlignElements - 1) / kAlignElements * kAlignElements;
  }
  if (counts.empty() || end > kMostElements)
    return Error{
        ErrorKind::invalid,
        fmt::format("{} tensors of {} elements together: there must be some, of at most {}",
                    counts.size(), end, kMostElements)};
  std::uint64_t begin = 0;
  for (std::size_t i = 1; i <= counts.size(); ++i) {
    const std::uint64_t at = i < counts.size() ? layout.begins[i] : end;
    const std::uint64_t left = std::max<std::uint64_t>(shards, 1) - layout.shards.size();
    // What is left is divided evenly among the shards that are left.
    if (i < counts.size() && (left == 1 || (at - begin) * left < end - begin)) continue;
    layout.shards.push_back(at - begin);
    begin = at;
  }
  return layout;
}

}  // namespace bellows::ps
