// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// How the ranks of one attempt left their agents. srun knows the status of a rank's command only:
/// that of `./train | tee log` is tee's, whatever became of the training.
class RankEnds {
 public:
  void note(const std::string& node, const event::Rank& rank);
  /// Ranks whose training is complete.
  std::uint32_t finished() const { return finished_; }
  /// For people, once all have ended with status 0: which ranks died nevertheless. Empty when the
  /// program has ended by itself: a rank has finished, or none went without a word.
  std::string deaths() const;

 private:
  std::uint32_t finished_ = 0;
  std::map<std::uint32_t, std::string> lost_;  ///< rank -> node
};

}  // namespace bellows
