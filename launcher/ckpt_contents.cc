// SPDX-License-Identifier: Apache-2.0
#include "launcher/ckpt_contents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "launcher/ckpt_verify.h"

namespace bellows {
namespace {

/// Elements of one index of the axis; of one index of all axes before it, "a line".
struct Strides {
  explicit Strides(const wire::Array& a) : line(wire::axis_extent(a)) {
    for (std::uint32_t i = a.axis + 1; i < a.ndims; ++i) index *= a.shape[i];
    line *= index;
  }
  std::uint64_t index = 1;
  std::uint64_t line;
};

/// By name, and by rank what is a rank's own.
using Found = std::map<std::pair<std::string, std::uint32_t>, StoredArray>;

void add_part(std::uint32_t rank, const StoredPart& stored, Found& found) {
  const wire::Array& a = stored.part.array;
  StoredArray& array = found[{stored.part.name, a.layout == wire::kPerRank ? rank : 0}];
  if (array.pieces.empty()) {
    array.name = stored.part.name;
    array.type = a;
    array.type.first = 0;
    array.type.count = wire::axis_extent(a);
  }
  array.pieces.push_back({rank, a.first, a.count, stored.offset});
}

Status read_file_range(const std::string& path, std::uint64_t offset, std::uint64_t bytes,
                       unsigned char* to) {
  auto fd = open_file(path, O_RDONLY | O_NOFOLLOW);
  if (!fd) return fd.error();
  while (bytes > 0) {
    const ssize_t got = pread(fd->get(), to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", path);
    if (got == 0) return Error{ErrorKind::corrupt, path + " is truncated"};
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
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

Result<StepContents> StepContents::open(const StepPlace& place, ProgressBar& progress) {
  auto manifest = verify_shown(place, progress);
  if (!manifest) return manifest.error();
  StepContents out;
  out.place_ = place;
  out.manifest_ = std::move(*manifest);
  Found found;
  for (const ShardFile& shard : out.manifest_.shards) {
    auto parts = read_shard_index(place.path() + "/" + shard.file);
    if (!parts) return parts.error();
    for (const StoredPart& stored : *parts) add_part(shard.rank, stored, found);
  }
  for (auto& [key, array] : found) {
    std::stable_sort(array.pieces.begin(), array.pieces.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    out.arrays_.push_back(std::move(array));
  }
  return out;
}

std::uint64_t StepContents::bytes() const {
  std::uint64_t bytes = 0;
  for (const StoredArray& array : arrays_) bytes += array.bytes();
  return bytes;
}

// `first` and `count` in elements of the piece.
Status StepContents::read_piece(const StoredArray& array, const StoredPiece& piece,
                                std::uint64_t first, std::uint64_t count, unsigned char* to) const {
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  return read_file_range(place_.path() + "/" + manifest_.shards[piece.rank].file,
                         piece.offset + first * size, count * size, to);
}

// `count` elements of one line from its element `first`.
Status StepContents::read_line(const StoredArray& array, std::uint64_t line, std::uint64_t first,
                               std::uint64_t count, unsigned char* to) const {
  const Strides strides(array.type);
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  for (const StoredPiece& piece : array.pieces) {
    const std::uint64_t begin = piece.first * strides.index;
    const std::uint64_t width = piece.count * strides.index;
    const std::uint64_t from = std::max(begin, first);
    const std::uint64_t end = std::min(begin + width, first + count);
    if (from >= end) continue;
    auto status = read_piece(array, piece, line * width + (from - begin), end - from,
                             to + (from - first) * size);
    if (!status) return status;
  }
  return {};
}

// Whole lines: what a piece holds of them lies together in its file, and apart in the array.
Status StepContents::read_lines(const StoredArray& array, std::uint64_t line, std::uint64_t lines,
                                unsigned char* to) const {
  const Strides strides(array.type);
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  std::vector<unsigned char> together;
  for (const StoredPiece& piece : array.pieces) {
    const std::uint64_t width = piece.count * strides.index;
    if (width == 0) continue;
    if (width == strides.line) return read_piece(array, piece, line * width, lines * width, to);
    together.resize(lines * width * size);
    auto status = read_piece(array, piece, line * width, lines * width, together.data());
    if (!status) return status;
    for (std::uint64_t i = 0; i < lines; ++i) {
      std::memcpy(to + (i * strides.line + piece.first * strides.index) * size,
                  together.data() + i * width * size, width * size);
    }
  }
  return {};
}

Status StepContents::read(const StoredArray& array, std::uint64_t first, std::uint64_t count,
                          unsigned char* to) const {
  const std::uint64_t length = Strides(array.type).line;
  const std::uint64_t size = wire::element_bytes(array.type.dtype);
  while (count > 0) {
    const std::uint64_t line = first / length, within = first % length;
    std::uint64_t now = std::min(count, length - within);
    Status status;
    if (within == 0 && count >= length) {
      now = count / length * length;
      status = read_lines(array, line, now / length, to);
    } else {
      status = read_line(array, line, within, now, to);
    }
    if (!status) return status;
    first += now;
    count -= now;
    to += now * size;
  }
  return {};
}

}  // namespace bellows
