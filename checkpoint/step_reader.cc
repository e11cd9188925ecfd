// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "checkpoint/digest.h"

namespace bellows {
namespace {

bool same_type(const wire::Array& a, const wire::Array& b) {
  return a.dtype == b.dtype && a.ndims == b.ndims && a.layout == b.layout &&
         std::equal(a.shape, a.shape + a.ndims, b.shape);
}

Status read_at(int fd, unsigned char* to, std::uint64_t bytes, std::uint64_t offset,
               const std::string& path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
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

Result<std::shared_ptr<const StepReader>> StepReader::open(const std::string& step_dir,
                                                           const Manifest& manifest) {
  auto reader = std::make_shared<StepReader>();
  reader->step_dir_ = step_dir;
  reader->manifest_ = manifest;
  for (const ShardFile& shard : manifest.shards) {
    auto index = read_shard_index(reader->shard_path(shard.rank));
    if (!index) return index.error();
    for (StoredPart& stored : *index) {
      const std::string name = stored.part.name;
      reader->arrays_[name].push_back({shard.rank, std::move(stored)});
    }
  }
  for (auto& [name, pieces] : reader->arrays_) {
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.stored.part.array.first < b.stored.part.array.first;
    });
  }
  return std::shared_ptr<const StepReader>(std::move(reader));
}

Status StepReader::check_array(const std::string& name, const std::vector<Piece>& pieces) const {
  const ArrayPart& first = pieces.front().stored.part;
  std::uint64_t next = 0;
  for (const Piece& piece : pieces) {
    const ArrayPart& part = piece.stored.part;
    const wire::Array& a = part.array;
    if (!same_type(a, first.array)) {
      return Error{
          ErrorKind::invalid,
          fmt::format("array {}: rank {} has it as {}, rank {} as {}, or one as replicated", name,
                      pieces.front().rank, first.type_text(), piece.rank, part.type_text())};
    }
    if (a.count == 0) continue;
    if (a.first != next) {
      return Error{
          ErrorKind::invalid,
          a.first > next
              ? fmt::format("array {}: no rank holds the rows {} to {}", name, next, a.first - 1)
              : fmt::format("array {}: rank {} holds the row {}, which another rank holds too",
                            name, piece.rank, a.first)};
    }
    next = a.first + a.count;
  }
  const std::uint64_t extent = wire::axis_extent(first.array);
  if (next == extent) return {};
  return Error{ErrorKind::invalid,
               fmt::format("array {}: no rank holds the rows {} to {}", name, next, extent - 1)};
}

Status StepReader::check_whole() const {
  for (const auto& [name, pieces] : arrays_) {
    if (auto status = check_array(name, pieces); !status) return status;
  }
  return {};
}

Result<const std::vector<StepReader::Piece>*> StepReader::find(const ArrayPart& wanted) const {
  auto found = arrays_.find(wanted.name);
  if (found == arrays_.end()) {
    return Error{ErrorKind::invalid,
                 fmt::format("step {} holds no array {}", manifest_.step, wanted.name)};
  }
  const ArrayPart& stored = found->second.front().stored.part;
  if (!same_type(stored.array, wanted.array)) {
    return Error{
        ErrorKind::invalid,
        fmt::format("array {} is {}{} in step {}, the program registered {}{}", wanted.name,
                    stored.type_text(), stored.array.layout ? " sharded" : "", manifest_.step,
                    wanted.type_text(), wanted.array.layout ? " sharded" : "")};
  }
  return &found->second;
}

Status StepReader::read_rows(const Piece& piece, std::uint64_t first, std::uint64_t rows,
                             unsigned char* to) const {
  const StoredPart& stored = piece.stored;
  const wire::Array& a = stored.part.array;
  std::uint64_t row = 0;
  if (!wire::part_bytes(a, 1, &row) || row * rows == 0) return {};
  const std::string path = shard_path(piece.rank);
  auto fd = open_file(path, O_RDONLY | O_NOFOLLOW);
  if (!fd) return fd.error();
  const std::uint64_t offset = stored.offset + (first - a.first) * row;
  if (auto status = read_at(fd->get(), to, rows * row, offset, path); !status) return status;
  // A whole piece can be held against its digest at no further reading.
  if (rows == a.count &&
      digest_of({reinterpret_cast<const char*>(to), rows * row}) != stored.xxh3) {
    return Error{
        ErrorKind::corrupt,
        fmt::format("{} is damaged: array {} does not match its digest", path, stored.part.name)};
  }
  return {};
}

Status StepReader::read_part(const ArrayPart& wanted, unsigned char* to) const {
  auto pieces = find(wanted);
  if (!pieces) return pieces.error();
  const wire::Array& w = wanted.array;
  std::uint64_t row = 0, done = 0;
  if (!wire::part_bytes(w, 1, &row)) return check_part(wanted);
  for (const Piece& piece : **pieces) {
    const wire::Array& a = piece.stored.part.array;
    const std::uint64_t first = std::max(a.first, w.first);
    const std::uint64_t last = std::min(a.first + a.count, w.first + w.count);
    if (first >= last) continue;
    auto status = read_rows(piece, first, last - first, to + (first - w.first) * row);
    if (!status) return status;
    done += last - first;
  }
  if (done == w.count) return {};
  return Error{ErrorKind::corrupt,
               fmt::format("step {} holds only {} of the {} rows from {} of array {}",
                           manifest_.step, done, w.count, w.first, wanted.name)};
}

Status StepReader::read(const std::vector<ArrayPart>& parts,
                        const std::vector<std::uint64_t>& offsets, unsigned char* data) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (auto status = read_part(parts[i], data + offsets[i]); !status) return status;
  }
  return {};
}

std::string StepReader::shard_path(std::uint32_t rank) const {
  return fmt::format("{}/{}", step_dir_, manifest_.shards[rank].file);
}

}  // namespace bellows
