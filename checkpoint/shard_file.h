// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/array_part.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/store.h"
#include "common/result.h"

namespace bellows {

/// A part in a shard file: where its bytes are and their digest.
struct StoredPart {
  ArrayPart part;
  std::uint64_t offset = 0;
  std::string xxh3;
};

/// What a rank's shard is made of. The data stays the caller's.
struct Snapshot {
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::vector<ArrayPart> parts;        ///< those this rank stores
  std::vector<std::uint64_t> offsets;  ///< of each part in data
  const unsigned char* data = nullptr;
};

/// Writes the shard as a closed, durable HDF5 file. `cancelled` is looked at between chunks. On
/// failure the file is removed again. Safe for several threads with different paths.
Result<ShardFile> write_shard(FileOps& ops, const std::string& path, const Snapshot& snapshot,
                              const std::atomic<bool>& cancelled);

/// The parts of a shard file. corrupt: it isn't one; names the path.
Result<std::vector<StoredPart>> read_shard_index(const std::string& path);

}  // namespace bellows
