// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "paramserver/server/server_memory.h"
#include "paramserver/server/shard_loop.h"

namespace bellows::ps {

/// A learner and what belongs to it, shared by all shards.
struct Joined {
  Member member;
  std::shared_ptr<const SlotMemory> slot;
  std::shared_ptr<const Fd> bell;  ///< an eventfd that the learner writes to
};

/// Who takes part. Any thread may change it; each shard takes it over between two turns.
class Members {
 public:
  /// `limit`: no shard goes beyond this version.
  void set(std::vector<Joined> joined, std::uint64_t limit = ShardLoop::kNoLimit);
  std::pair<std::vector<Joined>, std::uint64_t> get() const;
  std::uint64_t generation() const { return generation_.load(); }

 private:
  mutable std::mutex mutex_;
  std::vector<Joined> joined_;
  std::uint64_t limit_ = ShardLoop::kNoLimit;
  std::atomic<std::uint64_t> generation_{0};
};

/// One shard's thread. Ends with this object.
class ShardThread {
 public:
  /// `cut_bell`: rung when a saver wants something; null: there is none.
  ShardThread(const ControlView& control, std::uint32_t shard, ShardLoop loop,
              const Members& members, const Fd* cut_bell = nullptr);
  ShardThread(const ShardThread&) = delete;
  ShardThread& operator=(const ShardThread&) = delete;
  ~ShardThread();

  Status start();
  /// The generation of members that it has taken over.
  std::uint64_t generation() const { return generation_.load(); }

 private:
  void run();
  void take_members();
  void sleep();

  ControlView control_;
  std::uint32_t shard_;
  ShardLoop loop_;
  const Members& members_;
  const Fd* cut_bell_;
  std::vector<Joined> joined_;
  std::vector<Member> plain_;
  std::uint64_t limit_ = ShardLoop::kNoLimit;
  Fd epoll_;
  Fd end_bell_;
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> generation_{0};
  std::thread thread_;
};

}  // namespace bellows::ps
