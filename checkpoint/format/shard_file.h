// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/array_part.h"
#include "checkpoint/format/index.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/shard_copy.h"
#include "checkpoint/system/file_ops.h"
#include "common/result.h"

namespace bellows {

/// What a rank's shard is made of. The data stays the caller's.
struct Snapshot {
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::vector<ArrayPart> parts;        ///< those this rank stores
  std::vector<std::uint64_t> offsets;  ///< of each part in data
  const unsigned char* data = nullptr;
  std::optional<HeldNames> held{};  ///< of all that the rank registered
};

/// Writes the shard as a closed, durable HDF5 file, and its index beside it. `cancelled` is looked
/// at between blocks. On failure the files are removed again. `copy` gets where the file's bytes
/// lie in memory; whose the snapshot is, is for the caller to add. Safe for several threads with
/// different paths.
Result<ShardFile> write_shard(FileOps& ops, const std::string& path, const Snapshot& snapshot,
                              const std::atomic<bool>& cancelled, ShardCopy* copy = nullptr);

/// Removes what write_shard wrote.
Status remove_shard(FileOps& ops, const std::string& path);

}  // namespace bellows
