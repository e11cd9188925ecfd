// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "pool/wire/channel.h"

namespace bellows::pool {

class Member;
class Members;

using Clock = std::chrono::steady_clock;

/// One incarnation of a member, and how many calls of this caller it has.
struct Target {
  std::uint32_t job = 0;
  std::string address;
  std::uint64_t incarnation = 0;
  std::string incarnation_text;
  std::shared_ptr<grpc::Channel> channel;
  int outstanding = 0;
  bool well = false;  ///< it has answered, and nothing has gone wrong since
  bool gone = false;  ///< it drains or has a successor: it is never called again
  Clock::time_point not_before;
  Clock::duration pause{};
};

/// The members that may be called, as the keeper said last, and which of them is next.
class Targets {
 public:
  explicit Targets(PoolKey key) : key_(std::move(key)) {}

  /// What the keeper says. Calls on those that are no longer ready go on.
  void update(const Members& said);
  /// Why there is none.
  void set_trouble(std::string trouble);
  std::string trouble() const;

  /// A member to call, which counts as one more call of it; nullptr: there was none until then.
  std::shared_ptr<Target> take(Clock::time_point deadline);
  /// How the call of take() ended.
  enum class End {
    answered,
    full,   ///< it has too many calls
    lost,   ///< it could not be reached, or broke off
    gone,   ///< it drains, or is not the one that was meant
    other,  ///< nothing is known of it
  };
  void give(Target& target, End end);

 private:
  std::shared_ptr<Target> best();
  std::shared_ptr<Target> find(const Member& member) const;
  std::shared_ptr<Target> open(const Member& member) const;

  const PoolKey key_;
  // Held for a few instructions, never in a call.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Target>> ready_;
  std::string trouble_ = "its keeper has not said yet who its members are";
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace bellows::pool
