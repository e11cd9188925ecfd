// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "checkpoint/agent/jobs.h"
#include "checkpoint/agent/voice.h"
#include "checkpoint/store/store_writer.h"
#include "common/result.h"

namespace bellows {

/// What the leader's agent does to the store, on a thread of its own and in the order in which it
/// is asked for: ownership, find, commit, retention. Main thread only.
class StoreDesk {
 public:
  /// Both must outlive the desk.
  StoreDesk(Voice& voice, Jobs& jobs)
      : voice_(voice), jobs_(jobs), thread_(1, jobs.completions()) {}

  /// A new attempt, whose writer this is.
  void begin(std::shared_ptr<StoreWriter> writer);
  /// Tries to own the directory, once more where that has failed; `then` gets what came of it.
  void own(std::function<void(const Status&)> then);
  /// Whether that has failed.
  bool not_owned() const { return not_owned_; }
  void find(Search search);
  void commit(std::uint64_t step, std::vector<ShardFile> shards);
  /// Whether old steps are yet to be removed.
  bool tidies() const { return tidying_ > 0; }
  /// Runs `then` once all is done that was asked for before.
  void after_all(std::function<void()> then);

 private:
  Voice& voice_;
  Jobs& jobs_;
  std::shared_ptr<StoreWriter> writer_;
  bool not_owned_ = false;
  std::uint32_t tidying_ = 0;  ///< commits after which old steps are yet to be removed
  /// Committed since the last find; used on the thread only.
  std::set<std::uint64_t> fresh_;
  Workers thread_;  ///< last: it uses what is above, and is joined first
};

}  // namespace bellows
