// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/index.h"
#include "checkpoint/store.h"
#include "common/result.h"

// Shards of the first format: one digest for the whole file, and HDF5 itself as the index.
namespace bellows {

/// Verifies the file, and describes it as an index of today would.
Result<ShardIndex> read_shard_v1(const std::string& path, const Manifest& manifest,
                                 const ShardFile& shard);

}  // namespace bellows
