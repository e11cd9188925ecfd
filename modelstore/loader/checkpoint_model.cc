// SPDX-License-Identifier: Apache-2.0
#include "modelstore/loader/checkpoint_model.h"

#include <fmt/core.h>

#include <map>
#include <utility>

#include "modelstore/format/safetensors.h"

namespace bellows {
namespace {

using catalogue::TensorType;

/// Texts of all indexes together: a step of 4096 ranks with a hundred thousand parts has less.
constexpr std::uint64_t kMostIndexBytes = 512 << 20;

/// The number of enum bellows_dtype whose elements are opaque bytes.
constexpr std::uint32_t kBytes = 16;

Error about(const std::string& place, const Error& error) {
  return Error{ErrorKind::corrupt, fmt::format("{}: {}", place, error.text)};
}

/// By name: of each array that every rank is to have, what its first part says.
using WholeArrays = std::map<std::string, wire::Array>;

void add_arrays(const ShardIndex& shard, WholeArrays* arrays) {
  for (const StoredPart& stored : shard.arrays) {
    wire::Array whole = stored.part.array;
    if (whole.layout == wire::kPerRank) continue;
    whole.first = 0;
    whole.count = wire::axis_extent(whole);
    arrays->emplace(stored.part.name, whole);
  }
}

Result<FileTensor> tensor_of(const ArrayPart& part) {
  const wire::Array& a = part.array;
  FileTensor tensor;
  tensor.name = part.name;
  // The numbers are the same up to c64.
  tensor.type = a.dtype == kBytes ? TensorType::u8 : static_cast<TensorType>(a.dtype);
  tensor.shape.assign(a.shape, a.shape + a.ndims);
  const auto type = static_cast<std::uint32_t>(tensor.type);
  if (catalogue::element_bits(type) == 0)
    return Error{ErrorKind::corrupt,
                 fmt::format("array {} is {}, which no model has: write the others to a file with "
                             "\"bellows ckpt export --except {}\", and use that",
                             part.name, part.type_text(), part.name)};
  if (catalogue::tensor_bytes(type, a.shape, a.ndims, &tensor.bytes)) return tensor;
  return Error{ErrorKind::corrupt, fmt::format("array {} is {}, which is too large for a model",
                                               part.name, part.type_text())};
}

}  // namespace

Result<CheckpointModel> CheckpointModel::parse_manifest(const std::string& folder,
                                                        std::string_view text) {
  CheckpointModel model;
  model.folder_ = folder;
  const std::string path = model.path_of("manifest.json");
  const std::string name = folder.substr(folder.rfind('/') + 1);
  if (name.starts_with(".tmp-"))
    return Error{ErrorKind::invalid,
                 folder + " is a checkpoint step that is not committed: name one that is"};
  auto manifest = Manifest::parse(text);
  if (!manifest) return about(path, manifest.error());
  model.manifest_ = std::move(*manifest);
  const auto step = parse_step_name(name);
  if (step && *step != model.manifest_.step)
    return Error{ErrorKind::corrupt,
                 fmt::format("{}: it is the manifest of step {}", path, model.manifest_.step)};
  if (model.manifest_.shards.size() <= kMostFiles) return model;
  return Error{ErrorKind::corrupt,
               fmt::format("{}: a model has at most {} files, and the step has {}", path,
                           kMostFiles, model.manifest_.shards.size())};
}

Status CheckpointModel::add_index(std::string text) {
  index_bytes_ += text.size();
  if (index_bytes_ > kMostIndexBytes)
    return Error{ErrorKind::corrupt,
                 fmt::format("{}: the indexes have more than {} bytes", folder_, kMostIndexBytes)};
  indexes_.push_back(std::move(text));
  return {};
}

Result<ModelLayout> CheckpointModel::read_indexes(const std::function<void()>& progress) {
  std::vector<ShardIndex> shards;
  WholeArrays whole;
  for (std::size_t rank = 0; rank < indexes_.size(); ++rank) {
    const ShardFile& shard = manifest_.shards[rank];
    const std::string text = std::exchange(indexes_[rank], {});
    auto index = parse_index(path_of(shard.index), text, manifest_, shard);
    if (!index) return index.error();
    add_arrays(*index, &whole);
    shards.push_back(std::move(*index));
    progress();
  }
  reader_ = StepReader::of(folder_, manifest_, std::move(shards));
  if (auto checked = reader_->check_whole(); !checked) return about(folder_, checked.error());
  std::vector<FileTensor> tensors;
  for (const auto& [name, array] : whole) {
    arrays_.push_back({name, array});
    auto tensor = tensor_of(arrays_.back());
    if (!tensor) return about(folder_, tensor.error());
    tensors.push_back(std::move(*tensor));
  }
  if (tensors.empty())
    return Error{ErrorKind::corrupt,
                 folder_ + ": the step has no replicated or sharded array, so it is no model"};
  auto layout = lay_out_tensors(&tensors);
  if (!layout) return about(folder_, layout.error());
  // Both are in the order of the names.
  for (const FileTensor& tensor : tensors) offsets_.push_back(tensor.offset);
  return layout;
}

Status CheckpointModel::fill(const std::vector<ReadFile>& files, unsigned char* memory,
                             const Progress& progress) const {
  Wanted wanted;
  wanted.parts = arrays_;
  wanted.offsets = offsets_;
  wanted.data = memory;
  wanted.files = files;
  wanted.progress = progress;
  const auto read = reader_->read(wanted);
  return read ? Status() : Status(read.error());
}

}  // namespace bellows
