// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/result.h"
#include "pool/wire/pool_place.h"
#include "slurm/job.h"

namespace bellows::pool {

/// A run of a keeper's job. A value.
struct KeeperRun {
  SlurmJob job{};  ///< what Slurm said of it when the run began; id 0: the keeper is in none
  std::uint64_t term = 0;  ///< grows from each run to the next
};

/// A term that is above all that keepers of the pool in `dir` have had.
std::uint64_t next_term(const std::string& dir);

/// Which of two keepers has the pool, by its directory: that of the highest term. Slurm may have
/// started a job again, or its owner another one, while the first was cut off. Used by one thread.
class KeeperSeat {
 public:
  explicit KeeperSeat(std::string dir) : dir_(std::move(dir)) {}

  /// Says in the directory where this keeper is. busy: one of a later term has the pool.
  Status take(const KeeperPlace& place);
  /// Whether it still has the pool. busy: another one has it; else that can't be read, which is no
  /// reason to act. What a keeper of an earlier term has written is put right.
  Status look();

 private:
  Status check() const;

  const std::string dir_;
  KeeperPlace place_;
};

}  // namespace bellows::pool
