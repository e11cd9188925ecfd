// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/agent/agent_parts.h"
#include "common/result.h"

namespace bellows {

/// How ranks leave an agent, by themselves or not. Main thread only.
class Farewell {
 public:
  explicit Farewell(AgentParts& parts) : parts_(parts) {}

  /// A rank wants to leave, and waits for the answer.
  void take_bye(RankLink& link, bool finished);
  /// The rank has broken the protocol.
  void turn_out(RankLink& link, const Error& error);
  void hang_up(RankLink& link);
  /// Forgets the ranks that have left. What a rank gave completely before it died is still written,
  /// and only then is it called lost, or exited: its step may be complete without it.
  void forget_departed();
  /// Whether a rank that had joined has left.
  bool any_left() const { return any_left_; }

 private:
  void say_goodbye(RankLink& link, bool finished);

  AgentParts& parts_;
  bool any_left_ = false;
};

}  // namespace bellows
