// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read/step_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/format/manifest.h"

namespace bellows {
namespace {

constexpr const char* kLayoutWords[] = {"", " sharded", " per rank", " as a value"};

bool same_whole(const wire::Array& a, const wire::Array& b) {
  return a.dtype == b.dtype && a.ndims == b.ndims && a.layout == b.layout &&
         std::equal(a.shape, a.shape + a.ndims, b.shape);
}

// Pages for what the rank does not read itself.
Status reserve_rest(const Wanted& wanted) {
  std::uint64_t at = 0;
  for (const wire::Block& block : wanted.offers->blocks) {
    if (auto status = wanted.memory->reserve(at, block.to - at); !status) return status;
    at = block.to + block.bytes;
  }
  return wanted.memory->reserve(at, wanted.memory->size() - at);
}

std::string text_of(const ArrayPart& part) {
  return part.type_text() + kLayoutWords[part.array.layout];
}

}  // namespace

Result<std::shared_ptr<const StepReader>> StepReader::open(const std::string& step_dir,
                                                           const Manifest& manifest) {
  std::vector<ShardIndex> shards;
  for (const ShardFile& shard : manifest.shards) {
    auto index = read_index(step_dir, manifest, shard);
    if (!index) return index.error();
    shards.push_back(std::move(*index));
  }
  return of(step_dir, manifest, std::move(shards));
}

std::shared_ptr<const StepReader> StepReader::of(const std::string& step_dir,
                                                 const Manifest& manifest,
                                                 std::vector<ShardIndex> shards) {
  auto reader = std::make_shared<StepReader>();
  reader->step_dir_ = step_dir;
  reader->manifest_ = manifest;
  reader->shards_ = std::move(shards);
  for (const ShardIndex& shard : reader->shards_) {
    for (const StoredPart& stored : shard.arrays) {
      reader->arrays_[stored.part.name].pieces.push_back({shard.rank, &stored});
    }
    for (const StoredValue& value : shard.values) reader->arrays_[value.part.name].value = &value;
  }
  for (auto& [name, named] : reader->arrays_) {
    std::stable_sort(named.pieces.begin(), named.pieces.end(), [](const Piece& a, const Piece& b) {
      return a.stored->part.array.first < b.stored->part.array.first;
    });
  }
  return reader;
}

Status StepReader::check_array(const std::string& name, const Named& named) const {
  const ArrayPart& first = named.part();
  std::uint64_t next = 0;
  for (const Piece& piece : named.pieces) {
    const ArrayPart& part = piece.stored->part;
    const wire::Array& a = part.array;
    if (a.layout == wire::kPerRank && first.array.layout == wire::kPerRank) continue;
    if (!same_whole(a, first.array) || a.axis != first.array.axis) {
      return Error{
          ErrorKind::invalid,
          fmt::format("array {}: rank {} has it as {} along axis {}, another rank as {} "
                      "along axis {}",
                      name, piece.rank, text_of(part), a.axis, text_of(first), first.array.axis)};
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
  if (named.value || first.array.layout == wire::kPerRank || next == extent) return {};
  return Error{ErrorKind::invalid,
               fmt::format("array {}: no rank holds the rows {} to {}", name, next, extent - 1)};
}

// A rank stores what its share of the names is. One that only some ranks have might be nobody's.
Status StepReader::check_names() const {
  const std::optional<HeldNames>& first = shards_[0].held;
  for (const ShardIndex& shard : shards_) {
    if (!first || !shard.held) continue;
    // Rank 0 stores all values, so others need none.
    const bool values = shard.held->values == first->values || shard.held->values == Hash128();
    if (values && shard.held->replicated == first->replicated) continue;
    return Error{ErrorKind::invalid,
                 fmt::format("rank {} has not registered the same {} as rank 0: register them on "
                             "every rank under the same names, or store them per rank",
                             shard.rank, values ? "replicated arrays" : "values")};
  }
  return {};
}

Status StepReader::check_whole() const {
  for (const auto& [name, named] : arrays_) {
    if (auto status = check_array(name, named); !status) return status;
  }
  return check_names();
}

Result<const StepReader::Named*> StepReader::find(const ArrayPart& wanted) const {
  auto found = arrays_.find(wanted.name);
  if (found == arrays_.end()) {
    return Error{ErrorKind::invalid,
                 fmt::format("step {} holds no array {}", manifest_.step, wanted.name)};
  }
  const ArrayPart& stored = found->second.part();
  const bool per_rank =
      stored.array.layout == wire::kPerRank && wanted.array.layout == wire::kPerRank;
  if (per_rank || same_whole(stored.array, wanted.array)) return &found->second;
  return Error{ErrorKind::invalid,
               fmt::format("array {} is {} in step {}, the program registered {}", wanted.name,
                           text_of(stored), manifest_.step, text_of(wanted))};
}

Result<bool> StepReader::plan(const Wanted& wanted, std::size_t i,
                              std::vector<FilePlan>* files) const {
  const ArrayPart& part = wanted.parts[i];
  const wire::Array& w = part.array;
  unsigned char* to = wanted.data + wanted.offsets[i];
  auto named = find(part);
  if (!named) return named.error();
  if ((*named)->value) {
    std::memcpy(to, (*named)->value->bytes.data(), (*named)->value->bytes.size());
    return true;
  }
  std::uint64_t done = 0;
  bool had = false;
  for (const Piece& piece : (*named)->pieces) {
    if (w.layout == wire::kPerRank &&
        (piece.rank != wanted.rank || !same_whole(piece.stored->part.array, w))) {
      continue;
    }
    had = true;
    auto copy = plan_copy(*piece.stored, w, to);
    if (!copy) continue;
    done += copy->total();
    copy->may_offer = w.layout != wire::kPerRank || !wanted.offers || wanted.offers->per_rank;
    (*files)[piece.rank].copies.push_back(*copy);
  }
  if (w.layout == wire::kPerRank && !had) return false;
  if (done == part.bytes()) return true;
  return Error{ErrorKind::corrupt, fmt::format("step {} holds only {} of the {} bytes of array {}",
                                               manifest_.step, done, part.bytes(), part.name)};
}

Result<std::vector<std::size_t>> StepReader::read(const Wanted& wanted) const {
  std::vector<std::size_t> kept;
  std::vector<FilePlan> files(shards_.size());
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    files[rank].path = shard_path(rank);
    files[rank].index = &shards_[rank];
    const auto copy = wanted.copies.find(rank);
    const bool same = copy != wanted.copies.end() && copy->second->step == manifest_.step &&
                      copy->second->file == manifest_.shards[rank];
    if (same) files[rank].copy = copy->second;
    if (!wanted.files.empty()) files[rank].read = wanted.files[rank];
  }
  for (std::size_t i = 0; i < wanted.parts.size(); ++i) {
    auto planned = plan(wanted, i, &files);
    if (!planned) return planned.error();
    if (!*planned) kept.push_back(i);
  }
  if (wanted.offers) {
    offer_blocks(&files, wanted.data, wanted.offers, wanted.count);
    if (auto status = reserve_rest(wanted); !status) return status.error();
  }
  if (auto status = read_blocks(files, wanted.progress, wanted.count); !status)
    return status.error();
  return kept;
}

Status StepReader::verify(const Progress& progress) const {
  std::vector<FilePlan> files;
  for (const ShardIndex& shard : shards_) {
    files.push_back({shard_path(shard.rank), &shard, {}, true});
  }
  return read_blocks(files, progress);
}

std::string StepReader::shard_path(std::uint32_t rank) const {
  return fmt::format("{}/{}", step_dir_, manifest_.shards[rank].file);
}

}  // namespace bellows
