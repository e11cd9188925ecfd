// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "pool/policy/decider.h"

namespace bellows::pool {

inline SignalBook::Time at(int second) { return SignalBook::Time{} + std::chrono::seconds(second); }

/// Members of a pool that aims at 10 calls for each.
struct World {
  PoolPolicy policy;
  SignalBook signals;
  MemberStarts started;
  std::vector<PoolMember> members;

  World() {
    policy.max = 20;
    policy.stabilisation = std::chrono::seconds(30);
    policy.targets = {{.metric = "calls", .per_member = 10}};
  }
  World& with(int ready, int unready = 0) {
    using State = PoolMember::State;
    members.clear();
    for (int i = 0; i < ready + unready; ++i)
      members.push_back(
          {"m" + std::to_string(i), i < ready ? State::ready : State::unready, at(i - 1000)});
    return *this;
  }
  void all_say(double value, int second, const std::string& metric = "calls") {
    for (const auto& member : members)
      if (member.state == PoolMember::State::ready)
        signals.put(member.id, metric, value, at(second));
  }
};

}  // namespace bellows::pool
