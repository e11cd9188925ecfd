// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt/contents.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/format/manifest.h"
#include "checkpoint/read/block_reader.h"
#include "checkpoint/store/store.h"

namespace bellows {
namespace {

/// Ordered by name; a rank's own arrays also by rank.
using Found = std::map<std::pair<std::string, std::uint32_t>, StoredArray>;

StoredArray& find_array(std::uint32_t rank, const ArrayPart& part, Found& found) {
  StoredArray& array = found[{part.name, part.array.layout == wire::kPerRank ? rank : 0}];
  array.name = part.name;
  array.type = part.array;
  array.type.first = 0;
  array.type.count = wire::axis_extent(part.array);
  return array;
}

std::vector<StoredArray> arrays_in(const StepReader& reader) {
  Found found;
  for (const ShardIndex& shard : reader.shards()) {
    for (const StoredPart& stored : shard.arrays) {
      const wire::Array& a = stored.part.array;
      find_array(shard.rank, stored.part, found)
          .pieces.push_back({shard.rank, a.first, a.count, stored.offset});
    }
    for (const StoredValue& value : shard.values) {
      find_array(shard.rank, value.part, found).value = value.bytes;
    }
  }
  std::vector<StoredArray> out;
  for (auto& [key, array] : found) {
    std::stable_sort(array.pieces.begin(), array.pieces.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    out.push_back(std::move(array));
  }
  return out;
}

/// Elements of one index of the axis; of the whole axis, "a line". An array is lines one after
/// another, and a piece has a part of each.
struct Strides {
  explicit Strides(const wire::Array& a) : line(wire::axis_extent(a)) {
    for (std::uint32_t i = a.axis + 1; i < a.ndims; ++i) index *= a.shape[i];
    line *= index;
  }
  std::uint64_t index = 1;
  std::uint64_t line;
};

using Copies = std::map<std::uint32_t, std::vector<Copy>>;  ///< by rank

/// `lines` lines from `line`, of each the elements first .. first + count - 1: all, when there are
/// several.
void plan_lines(const StoredArray& array, std::uint64_t line, std::uint64_t lines,
                std::uint64_t first, std::uint64_t count, unsigned char* to, Copies& copies) {
  const Strides strides(array.type);
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  for (const StoredPiece& piece : array.pieces) {
    const std::uint64_t begin = piece.first * strides.index;
    const std::uint64_t width = piece.count * strides.index;
    const std::uint64_t from = std::max(begin, first);
    const std::uint64_t end = std::min(begin + width, first + count);
    if (from >= end) continue;
    Copy copy;
    copy.offset = piece.offset + (line * width + from - begin) * size;
    copy.bytes = (end - from) * size;
    copy.outer = {lines, width * size, strides.line * size};
    copy.to = to + (from - first) * size;
    copies[piece.rank].push_back(copy);
  }
}

void plan_slice(const Slice& slice, unsigned char* to, Copies& copies) {
  const std::uint64_t length = Strides(slice.array->type).line;
  const std::uint64_t size = wire::element_bytes(slice.array->type.dtype);
  for (std::uint64_t done = 0; done < slice.count;) {
    const std::uint64_t at = slice.first + done, left = slice.count - done;
    const std::uint64_t within = at % length;
    const std::uint64_t lines = within == 0 ? left / length : 0;
    const std::uint64_t now = lines > 0 ? lines * length : std::min(left, length - within);
    plan_lines(*slice.array, at / length, std::max<std::uint64_t>(lines, 1), within,
               std::min(now, length), to + done * size, copies);
    done += now;
  }
}

}  // namespace

std::uint64_t StoredArray::elements() const {
  std::uint64_t product = 1;
  for (std::uint32_t i = 0; i < type.ndims; ++i) product *= type.shape[i];
  return product;
}

std::string StoredArray::title() const {
  return per_rank() ? fmt::format("{} of rank {}", name, pieces.front().rank) : name;
}

std::string StoredArray::layout_text() const {
  if (per_rank()) return fmt::format("rank {}'s own", pieces.front().rank);
  if (type.layout == wire::kSharded) return fmt::format("sharded along axis {}", type.axis);
  return type.layout == wire::kValue ? "value" : "replicated";
}

std::vector<std::vector<Slice>> cut_into_batches(const std::vector<const StoredArray*>& arrays,
                                                 std::uint64_t budget) {
  std::vector<std::vector<Slice>> batches;
  std::uint64_t used = budget;
  for (const StoredArray* array : arrays) {
    const std::uint64_t size = wire::element_bytes(array->type.dtype);
    const std::uint64_t total = array->elements();
    for (std::uint64_t first = 0; first < total;) {
      if (used + size > budget) {
        batches.emplace_back();
        used = 0;
      }
      const std::uint64_t count = std::min(total - first, (budget - used) / size);
      batches.back().push_back({array, first, count, used});
      used += count * size;
      first += count;
    }
  }
  return batches;
}

Result<StepContents> StepContents::open(const StepPlace& place) {
  auto manifest = read_manifest(place.path());
  if (!manifest) return manifest.error();
  if (manifest->step != place.step) {
    return Error{ErrorKind::corrupt,
                 fmt::format("{}/manifest.json belongs to step {}", place.path(), manifest->step)};
  }
  auto reader = StepReader::open(place.path(), *manifest);
  if (!reader) return reader.error();
  if (auto status = (*reader)->check_whole(); !status) {
    return Error{ErrorKind::corrupt, fmt::format("{}: {}", place.path(), status.error().text)};
  }
  StepContents out;
  out.place_ = place;
  out.manifest_ = std::move(*manifest);
  out.reader_ = std::move(*reader);
  out.arrays_ = arrays_in(*out.reader_);
  return out;
}

Status StepContents::read(const std::vector<Slice>& slices, unsigned char* to) const {
  Copies copies;
  for (const Slice& slice : slices) {
    const StoredArray& array = *slice.array;
    const std::uint64_t size = wire::element_bytes(array.type.dtype);
    if (array.type.layout != wire::kValue) {
      plan_slice(slice, to + slice.offset, copies);
    } else if (slice.count > 0) {
      std::memcpy(to + slice.offset, array.value.data() + slice.first * size, slice.bytes());
    }
  }
  std::vector<FilePlan> files;
  for (auto& [rank, wanted] : copies) {
    files.push_back({place_.path() + "/" + manifest_.shards[rank].file, &reader_->shards()[rank],
                     std::move(wanted), false});
  }
  return read_blocks(files);
}

}  // namespace bellows
