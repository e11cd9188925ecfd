// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace bellows {

/// What `bellows` and its subcommands return. Part of the interface: bellows(1) lists them.
enum ExitStatus : int {
  kOk = 0,
  kFailed = 1,       ///< it was tried and failed; the message says what state things are in
  kUsage = 2,        ///< the command line is wrong; nothing was done
  kRefused = 3,      ///< a rule, a right or the job's state forbids it; nothing was changed
  kUnreachable = 4,  ///< slurmctld or another daemon does not answer; nothing was changed
  kTimedOut = 5,     ///< under way, but not done within the time limit
  kInterrupted = 130,
};

/// Of a command that failed with this and says no more precisely how.
inline int exit_status_of(const Error& error) {
  if (error.kind == ErrorKind::unavailable) return kUnreachable;
  return error.kind == ErrorKind::denied ? kRefused : kFailed;
}

}  // namespace bellows
