// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pool/simulate/autoscaler.h"

namespace bellows::pool {

/// What members are like. A value.
struct Service {
  std::uint32_t min = 1;
  std::uint32_t max = 1000;
  double call_s = 0.5;             ///< that a call takes
  double at_once = 20.0 / 7;       ///< calls that a member runs at once; more wait
  double target = 2;               ///< calls at once at which it is loaded as it should be
  double timeout_s = 30;           ///< after which a call that waits fails
  std::vector<double> start_s{1};  ///< from the decision to ready, in turn
  double notice_s = 0;             ///< from a change of the load until the autoscaler sees it
  double tick_s = 1;               ///< between two decisions; the rivals are made for 1

  /// Members that a load needs, of calls a second.
  std::uint32_t needed(double calls) const;
};

/// How a pool did. A value.
struct PoolFigures {
  double agility = 0;  ///< mean over time of ready members above or below those needed
  double failed = 0;   ///< calls
  double calls = 0;
  double p99_s = 0;  ///< latency of calls that were served
  double member_hours = 0;
  std::uint32_t starts = 0;
};

/// Plays a load, calls a second for each tick, against an autoscaler. Calls are a fluid that
/// waits in one queue. `seed`: at which start time it begins. A pool begins with what the load
/// needs.
PoolFigures play(const Service& service, const std::vector<double>& load, Autoscaler& autoscaler,
                 std::uint32_t seed);

}  // namespace bellows::pool
