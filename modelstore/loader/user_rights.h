// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

#include "common/result.h"

namespace bellows {

/// While it lives, this thread opens files with a user's rights: the user's, the group's and the
/// supplementary groups', and without root's. The process stays whose it is, so that the user can
/// neither trace nor signal it. The process must have one thread.
class UserRights {
 public:
  /// The process's own user needs nothing. denied: another needs root. not_found: no such user.
  static Result<UserRights> take(uid_t uid);
  UserRights(UserRights&& other) noexcept;
  UserRights& operator=(UserRights&&) = delete;
  ~UserRights();

 private:
  UserRights() = default;

  bool taken_ = false;
  std::vector<gid_t> groups_;  ///< of the process
};

}  // namespace bellows
