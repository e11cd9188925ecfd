// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <string>

#include "checkpoint/format/manifest.h"
#include "checkpoint/store/store.h"
#include "tests/unit/checkpoint/checkpoint_support.h"

namespace bellows::checkpoint_test {

/// A directory with steps 10 and 20 in it.
struct TwoSteps {
  TwoSteps() : writer(ops, scratch.path(), "job.0.1", Retention{5}) {
    if (!writer.take_ownership() || !save_step(writer, ops, 10) || !save_step(writer, ops, 20)) {
      abort();
    }
  }
  std::string shard(std::uint64_t step, std::uint32_t rank) const {
    return step_path(scratch.path(), step) + "/" + shard_name(rank, 2);
  }
  std::string manifest(std::uint64_t step) const {
    return step_path(scratch.path(), step) + "/manifest.json";
  }

  ScratchDir scratch;
  FileOps ops;
  StoreWriter writer;
};

}  // namespace bellows::checkpoint_test
