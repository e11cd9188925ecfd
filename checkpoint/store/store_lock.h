// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// How long another may hold the store's lock: its holders rename and sync a few names, and remove
/// what a dead attempt has left.
inline constexpr std::chrono::seconds kLockWithin{30};

/// Held as long as the value lives.
struct StoreLock {
  Fd fd;
  /// Why nothing is locked, where the file system has no locks: then the record of the owner is all
  /// that keeps two attempts apart. Empty: it is locked.
  std::string none;
};

/// Waits for the lock under which a directory's owner changes and steps come, go and get names.
/// Only the directory's user can take it. denied: the file is another's; io: it was not free in
/// time, and who holds it.
Result<StoreLock> lock_store(const std::string& dir,
                             std::chrono::milliseconds within = kLockWithin);

/// One program at a time in a directory, outside jobs: there is no launcher to fence another off.
/// Held as long as the value lives. busy: another program holds it; denied: the file is another's.
Result<Fd> hold_store(const std::string& dir);

/// As long as the value lives, hold_store fails: there is a job in the directory. None where that
/// can't be said: a program holds it already, which the change of owner fences off.
Fd share_store(const std::string& dir);

}  // namespace bellows
