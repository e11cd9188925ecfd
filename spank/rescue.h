// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spank/controller.h"

namespace bellows::spank {

/// How often one job may be rescued on a node before it is left to fail.
inline constexpr std::uint32_t kMostRescues = 16;
/// Seconds between a rescue and the job's next start. A start in the second in which the old
/// credential was revoked would lose the job; a time set while it completes survives only if it is
/// still ahead when the last node is done, and the steps of a launcher that was killed try for 5 to
/// 7 s to reach it.
inline constexpr std::int64_t kRescueDelay = 10;

/// Seconds within which a restarted slurmctld makes every node register (MIN_CHECKIN_TIME is 3) and
/// ends what a node still runs of a job that it takes for pending. A node that runs nothing of it
/// is not told to forget it, and refuses the next batch script as a second copy.
inline constexpr std::int64_t kRegistersWithin = 6;
/// Seconds until such a job may start: a node looks only every second, and later every ten, whether
/// what it ends is over.
inline constexpr std::int64_t kOutlastDelay = 20;

/// One end of a batch script whose launcher left no outcome.
struct BatchEnd {
  /// Of the run that ends here; nothing when slurmctld did not answer at its start.
  std::optional<std::uint32_t> restarts;
  std::string node;
  std::uint32_t rescues = 0;  ///< so far
};

enum class Rescue {
  none,
  requeue,     ///< the job would end with its batch script
  start_soon,  ///< it was requeued, and whoever did so died before setting its start time
  outlast,  ///< slurmctld was killed and lost the record of this run: stay until the node registers
};

/// What to do, and for `none` why, for the log. The run must be the one slurmctld counts as running
/// now: a node that was cut off may end an old run while the job is running elsewhere.
struct RescuePlan {
  Rescue action = Rescue::none;
  std::string reason;
};
RescuePlan plan_rescue(const BatchEnd& end, const JobView& view);

}  // namespace bellows::spank
