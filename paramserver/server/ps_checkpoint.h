// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/include/bellows.h"
#include "common/result.h"
#include "paramserver/server/server_memory.h"
#include "paramserver/server/tensors.h"

namespace bellows::ps {

/// A training that is saved: its memory, and what lies where in it.
struct Saved {
  const ServerMemory* memory = nullptr;  ///< must outlive its use
  std::vector<std::uint64_t> counts;     ///< elements of each tensor
  TensorLayout layout;
  std::vector<std::string> states;  ///< what each of the rule's states is called
};

/// The parameter server as the single rank of libbellows: an array for each tensor and each of its
/// states, so that the checkpoint can be read with any number of threads, and how many gradients of
/// each learner it contains. A step is the number of updates and the idle ones. One thread at a
/// time.
class PsCheckpoint {
 public:
  /// Joins the agent of the job, or one for the directory `dir`.
  static Result<PsCheckpoint> join(const std::string& dir);

  /// Fills memory that is new. The step; nothing: there is no checkpoint. invalid: it is of another
  /// model.
  Result<std::optional<std::uint64_t>> restore(const Saved& saved);
  /// Lets go of memory that is about to go.
  void forget();
  /// What the shards have pinned, as this step. When this returns, nothing of it is read any more;
  /// `durable`: it is committed.
  Status save(const Saved& saved, const std::vector<Current>& pins, std::uint64_t step,
              bool durable);
  /// Whether the step is committed. Waits for saves that are under way.
  bool has_saved(std::uint64_t step);
  /// The least step that is to be asked about for a stop that is being decided; nothing: none is.
  Result<std::optional<std::uint64_t>> stop_ahead();
  /// Says how far the training is. Whether it is to be saved and to stop.
  Result<bool> should_stop(std::uint64_t step);
  /// Leaves the agent, once all is stored. `finished`: the training is complete.
  Status leave(bool finished);

 private:
  struct Leave {
    void operator()(bellows_t* b) const { bellows_finalize(b, 0); }
  };

  PsCheckpoint() = default;
  Status name_arrays(const Saved& saved, const std::vector<Current>& pins);
  Status name(const std::string& name, int dtype, std::uint64_t count, int layout, void* data);
  Status status_of(int code) const;

  std::unique_ptr<bellows_t, Leave> handle_;
  std::set<std::string> names_;        ///< of what is registered
  std::vector<std::uint64_t> totals_;  ///< gradients of each learner's place
  std::uint64_t updates_ = 0;
};

}  // namespace bellows::ps
