// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/format/index.h"
#include "checkpoint/system/file_ops.h"
#include "common/result.h"

namespace bellows {

/// Writes `step_dir`/whole.h5, in which every array is whole: a view of what the shards hold, which
/// it names relative to itself. A convenience for people's tools that nothing here reads. Until it
/// is durable it is `aside`, which must be on the same file system.
Status write_virtual_view(FileOps& ops, const std::string& step_dir, const std::string& aside,
                          const std::vector<ShardIndex>& shards);

}  // namespace bellows
