// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/read/step_reader.h"
#include "common/result.h"
#include "modelstore/format/model_layout.h"

namespace bellows {

/// A committed step of a checkpoint as a model: its replicated and sharded arrays, whole, are the
/// tensors. What a rank has for itself and values are none. The files are the caller's to open;
/// ../../checkpoint/FORMAT.md says what is in them. No HDF5 is parsed: an index has the offsets.
class CheckpointModel {
 public:
  /// `folder`: the step's, without links. corrupt: it is no manifest, or that of another step, or
  /// has more than kMostFiles shards; invalid: the step is not committed.
  static Result<CheckpointModel> parse_manifest(const std::string& folder, std::string_view text);

  /// By rank.
  const std::vector<ShardFile>& shards() const { return manifest_.shards; }
  std::string path_of(const std::string& file) const { return folder_ + "/" + file; }
  /// Of the next rank's index, for read_indexes(). corrupt: all are too long together.
  Status add_index(std::string text);

  /// When all have been added. corrupt: one is not what the manifest has, the arrays are not whole,
  /// or are no tensors.
  Result<ModelLayout> read_indexes(const std::function<void()>& progress);
  /// Puts the arrays, and nothing else, to `memory`, which has pages. Holds each block that it
  /// reads against its digest. `files`: how to read each rank's shard. corrupt: a block is damaged.
  Status fill(const std::vector<ReadFile>& files, unsigned char* memory,
              const Progress& progress) const;

 private:
  std::string folder_;
  Manifest manifest_;
  std::vector<std::string> indexes_;
  std::uint64_t index_bytes_ = 0;
  std::shared_ptr<const StepReader> reader_;
  std::vector<ArrayPart> arrays_;  ///< whole
  std::vector<std::uint64_t> offsets_;
};

}  // namespace bellows
