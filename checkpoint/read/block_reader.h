// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/index.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/shard_copy.h"
#include "checkpoint/read/copy_plan.h"
#include "common/result.h"

namespace bellows {

/// Reads so many bytes of a file, for several threads at once. `to` is a page's begin, or where the
/// bytes are wanted.
using ReadFile =
    std::function<Status(unsigned char* to, std::uint64_t bytes, std::uint64_t offset)>;

/// What is to be read of one shard file.
struct FilePlan {
  std::string path;
  const ShardIndex* index = nullptr;  ///< outlives the reading
  std::vector<Copy> copies;
  bool all = false;  ///< verify every block, whether anything is copied from it or not
  std::shared_ptr<const ShardCopy> copy{};  ///< where the file lies in memory too; may be none
  std::vector<bool> offered{};              ///< blocks that the rank reads itself; empty: none
  ReadFile read{};                          ///< reads it, where its path is not to be opened
};

/// Bytes of blocks, by where they were read.
struct ReadCount {
  std::atomic<std::uint64_t> memory{0};
  std::atomic<std::uint64_t> store{0};
};

/// Reads the blocks that are wanted, each once and in the order they lie on disk, by several
/// threads, and verifies every one of them. Blocks that the page cache holds come from there,
/// others past it. A block whose copy in memory has its digest is not read at all. corrupt: names
/// the file and the bytes.
Status read_blocks(const std::vector<FilePlan>& files, const Progress& progress = {},
                   ReadCount* count = nullptr);

}  // namespace bellows
