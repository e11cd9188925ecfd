// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/read/block_reader.h"
#include "checkpoint/wire/wire.h"
#include "common/fd.h"

namespace bellows {

/// Where a rank can read blocks itself.
struct OfferedSource {
  wire::Source kind;
  Fd fd;
};

/// What of a restore the rank does: the blocks that go to one place in one of its arrays. It copies
/// and verifies them in one pass, and needs nobody's memory for them but its own.
struct BlockOffers {
  std::size_t most_sources = wire::kMostSources;
  /// False where the rank may be given another step after a bad block: of per-rank arrays that step
  /// may say nothing, and then the rank must find in them what it had.
  bool per_rank = true;
  std::vector<OfferedSource> sources;
  std::vector<wire::Block> blocks;
};

/// Offers what can be offered of the files, which then are not to be read any more; `data`: where
/// what is wanted begins.
void offer_blocks(std::vector<FilePlan>* files, const unsigned char* data, BlockOffers* offers,
                  ReadCount* count);

}  // namespace bellows
