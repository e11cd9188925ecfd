// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/fd.h"
#include "common/result.h"
#include "paramserver/server/cut.h"
#include "paramserver/server/ps_checkpoint.h"

namespace bellows::ps {

struct SaverOptions {
  std::string dir;                         ///< empty: the job's
  std::chrono::milliseconds every{60000};  ///< 0: only when the job is to stop, and at the end
};

/// Whether this process is a rank that `bellows run` has started.
bool is_in_job();

/// Saves the training now and then, when the job is to stop, and at its end, from a thread of its
/// own: it may wait for the agent. Gradients are applied meanwhile. The step of a checkpoint is the
/// number of updates, and further by one or a few for each stop that came while there were none.
class Saver {
 public:
  using Say = std::function<void(const std::string&)>;
  enum class End {
    stopped,   ///< it is saved, and to go on later
    finished,  ///< it is saved, and complete
    failed     ///< it is not saved
  };

  /// unavailable: there is no agent.
  static Result<std::unique_ptr<Saver>> start(const SaverOptions& options, Say say);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// Waits for what the thread waits for.
  ~Saver();

  /// Before `save`. See PsCheckpoint.
  Result<std::optional<std::uint64_t>> restore(const Saved& saved);
  /// What was restored is about to go.
  void forget();
  /// From here on there is something to save. What both point to must outlive this.
  void save(Saved saved, Cut* cut);
  /// Saves what is there then, and ends so: stopped or finished. Nothing is applied any more.
  void finish(End end);
  /// Once there is nothing left for a server to do; bell() is rung then.
  std::optional<End> end() const;
  const Fd& bell() const { return bell_; }

 private:
  Saver(const SaverOptions& options, PsCheckpoint checkpoint, Say say);
  void run();
  std::chrono::milliseconds look();
  void look_at_agent();
  std::optional<End> wanted() const;
  std::uint64_t updates() const;
  std::uint64_t idle_steps() const;
  std::uint64_t next_step(std::optional<std::uint64_t> ahead);
  bool is_due(std::uint64_t step) const;
  Status save_cut(bool last);
  void say_save(const Status& saved);
  void end_with(End end);
  void agent_is_gone(const Error& error);

  const SaverOptions options_;
  const Say say_;
  Fd bell_;
  /// Of what is asked of the thread; nobody waits long for it.
  mutable std::mutex wish_mutex_;
  std::condition_variable news_;
  std::optional<End> wanted_;
  std::optional<End> end_;
  bool ends_ = false;
  /// Of all below: the thread has it while it waits for the agent, or for the shards.
  std::mutex mutex_;
  PsCheckpoint checkpoint_;
  std::optional<Saved> saved_;
  Cut* cut_ = nullptr;
  std::uint64_t saved_step_ = 0;
  std::chrono::steady_clock::time_point saved_at_;
  std::uint64_t quiet_at_ = 0;  ///< updates, when last seen
  std::chrono::steady_clock::time_point quiet_since_;
  bool save_failed_ = false;
  bool joined_ = true;
  std::thread thread_;
};

}  // namespace bellows::ps
