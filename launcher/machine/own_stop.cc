// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/own_stop.h"

#include <fmt/core.h>

namespace bellows {
OwnStop::OwnStop(const OwnCheckpoint& how, bool may_refuse, Clock::time_point now) : how_(how) {
  facts_.may_refuse = may_refuse;
  begin_time(now);
}

bool OwnStop::must_signal() const { return how_.signal != 0 && !signalled_ && !facts_.ranks; }

void OwnStop::begin_time(Clock::time_point now) { until_ = now + std::chrono::seconds(how_.grace); }

OwnStopEnd OwnStop::judge(Clock::time_point now) {
  facts_.out_of_time = now >= until_;
  return judge_own_stop(how_, facts_);
}

std::string OwnStop::trouble() const {
  if (!facts_.lost.empty()) return facts_.lost;
  if (facts_.ranks) return "the ranks' step " + facts_.ranks->to_string() + " at the stop";
  if (facts_.command && !facts_.command->ok())
    return "the checkpoint command " + facts_.command->to_string();
  if (!how_.command.empty()) return "the checkpoint command did not end in time";
  return fmt::format("no checkpoint within {} s", how_.grace);
}

}  // namespace bellows
