// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "common/result.h"

namespace bellows {

/// Whether the same may go well later: what failed is the store or the node, not what is stored.
inline bool may_pass(const Error& error) {
  return error.kind != ErrorKind::corrupt && error.kind != ErrorKind::invalid;
}

/// Reads, a few times more after pauses when it fails for a reason that may pass. `read` gives a
/// Status or a Result.
template <class Read>
auto read_with_patience(Read read) {
  using namespace std::chrono_literals;
  auto result = read();
  for (const auto pause : {100ms, 400ms, 1600ms}) {
    if (result || !may_pass(result.error())) break;
    std::this_thread::sleep_for(pause);
    result = read();
  }
  return result;
}

}  // namespace bellows
