// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pool/policy/member_starts.h"
#include "pool/policy/need_history.h"
#include "pool/policy/pool_policy.h"
#include "pool/policy/signal_book.h"

namespace bellows::pool {

/// A member as the decider sees it; one that has ended is none.
struct PoolMember {
  enum class State { unready, ready, draining };

  std::string id;
  State state = State::unready;
  SignalBook::Time since;  ///< of its submission
};

/// Why a pool has the size that it has.
struct SizeReason {
  enum class Kind {
    steady,        ///< nothing asks for another size
    target,        ///< a target needs it
    threshold,     ///< a utilisation is above or below its threshold
    vote,          ///< members voted
    script,        ///< the policy's script asks for it
    failed,        ///< the script gave no answer
    stabilising,   ///< fewer would be enough, but not for long enough yet
    trend,         ///< the need rises so steadily that more are needed by when they have started
    panic,         ///< fewer would be enough, but the load has just jumped
    missing_data,  ///< fewer would be enough by what is known, and not all is known
    bounds,        ///< min, max or the members of one decision limit it
  };

  Kind kind = Kind::steady;
  std::string metric;              ///< of a target or threshold
  double value = 0;                ///< of that: sum or mean of what is known
  double needed = 0;               ///< members, before limits
  std::int64_t votes = 0;          ///< members more or fewer
  std::uint32_t missing = 0;       ///< ready members of which something isn't known
  std::chrono::seconds window{0};  ///< of the stabilisation
  std::string error{};             ///< of the script
};

struct SizeDecision {
  std::uint32_t wanted = 0;
  std::vector<std::string> drain;  ///< in this order, all of them now
  SizeReason reason;
};

/// The reason in a sentence.
std::string explain(const SizeDecision& decision);

/// Decides how many members a pool wants. To be asked each second at least; deterministic: time is
/// an argument.
///
/// What one lying member can do: its metric counts for at most vote_limit members more than the
/// highest of the others, and at most vote_limit fewer than the lowest; where it goes from the one
/// to the other steadily, for two thirds of vote_limit more; its vote for vote_limit in each burst
/// interval; all within the limits of a decision, min and max.
class Decider {
 public:
  using Time = SignalBook::Time;

  explicit Decider(PoolPolicy policy) : policy_(std::move(policy)), wanted_(policy_.min) {}

  /// Takes the votes out of `signals`. `started`: from measured members.
  SizeDecision decide(Time now, SignalBook& signals, const MemberStarts& started,
                      const std::vector<PoolMember>& members);

 private:
  using Seconds = MemberStarts::Seconds;

  /// What is asked for, before limits.
  struct Need {
    double members = 0;
    SizeReason reason;
    double slope = 0;  ///< members more a second, where the need rises or falls steadily
  };

  Need need_of_targets(Time now, const SignalBook& signals,
                       const std::vector<PoolMember>& ready) const;
  std::optional<Need> need_of_thresholds(Time now, const SignalBook& signals,
                                         const std::vector<PoolMember>& ready) const;
  std::optional<std::int64_t> count_votes(SignalBook& signals,
                                          const std::vector<PoolMember>& ready) const;
  Need need_of_script(Time now, const SignalBook& signals, const std::vector<PoolMember>& members,
                      std::int64_t votes) const;
  /// The same once a second, and what it said between.
  Need ask_script(Time now, const SignalBook& signals, const std::vector<PoolMember>& members,
                  std::int64_t votes);
  void begin(Time now, const std::vector<PoolMember>& members);
  /// The larger of what targets need and what votes, or else thresholds, ask for. `rests`: a
  /// threshold may change nothing now.
  Need choose(Time now, const SignalBook& signals, const std::vector<PoolMember>& ready,
              std::optional<std::int64_t> votes, bool rests) const;
  std::uint32_t grown(double needed, SizeReason& reason) const;
  /// `start`: what members take to start; 0: that is not known.
  std::chrono::seconds window_of(Seconds start) const;
  /// What will be needed when members have started that are submitted now.
  void look_ahead(Need& need, Seconds start) const;
  std::uint32_t shrunk(Time now, const Need& need, std::size_t ready, Seconds start,
                       SizeReason& reason) const;

  PoolPolicy policy_;
  std::uint32_t wanted_;
  std::optional<Time> panic_until_;
  std::optional<Time> changed_by_threshold_;
  std::optional<Time> first_;  ///< decision since the last hole
  Time last_;                  ///< decision
  Time step_at_;
  std::uint32_t step_from_ = 0;  ///< the size at step_at_
  NeedHistory needs_;
  std::optional<Need> script_need_;
  Time script_at_;
  std::int64_t script_votes_ = 0;  ///< that the script does not know yet
};

}  // namespace bellows::pool
