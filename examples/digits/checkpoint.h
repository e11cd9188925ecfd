// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <bellows.hpp>

namespace digits {

/// libbellows for this program. Arrays that are added must outlive it.
class Checkpoint : public bellows::Checkpoint {
 public:
  /// An empty directory means the one that Bellows says.
  Checkpoint(const std::string& dir, int rank, int world)
      : bellows::Checkpoint({dir, rank, world, 0}) {}

  /// True when the step is committed. A full disk is no reason to stop training: false, and the
  /// sentence on standard error from rank 0. Like should_stop it may wait for the other ranks: see
  /// Comm::settle.
  bool save(std::uint64_t step);
};

}  // namespace digits
