// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/digest.h"
#include "checkpoint/system/file_ops.h"
#include "checkpoint/system/file_piece.h"
#include "common/result.h"

namespace bellows {

/// Writes a file of `size` bytes durably, past the page cache where the file system lets it, and
/// gives the digests of its blocks: of what memory holds, not of what a disk gives back. The pieces
/// ascend and cover the file. `cancelled` is looked at between blocks. On failure the file is left
/// as it is.
Result<std::vector<Hash128>> write_blocks(FileOps& ops, const std::string& path,
                                          const std::vector<FilePiece>& pieces, std::uint64_t size,
                                          std::uint64_t block, const std::atomic<bool>& cancelled);

}  // namespace bellows
