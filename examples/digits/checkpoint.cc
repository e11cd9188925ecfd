// SPDX-License-Identifier: Apache-2.0
#include "examples/digits/checkpoint.h"

#include <cstdio>

namespace digits {

bool Checkpoint::save(std::uint64_t step) try {
  bellows::Checkpoint::save(step);
  return true;
} catch (const bellows::CheckpointError& error) {
  if (error.code() != BELLOWS_ERR_IO) throw;
  if (rank() == 0) {
    std::fprintf(stderr, "digits: step %llu is not saved: %s\n",
                 static_cast<unsigned long long>(step), error.what());
  }
  return false;
}

}  // namespace digits
