// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "jobsubmit/policy/policy.h"

namespace bellows {

/// Who the users and groups of a policy are, looked up beforehand: slurmctld must not wait for a
/// directory service while it holds its locks. A value; safe to read from many threads.
class People {
 public:
  struct Person {
    std::string user;                 ///< empty: one that the policy does not name
    std::vector<std::string> groups;  ///< those that the policy names
  };

  /// Asks the system's name services, which may take any amount of time. A name that nobody has
  /// is not an error. unavailable: a service does not answer.
  static Result<People> look_up(const Policy& policy);
  /// Whether look_up would ask anything.
  static bool named_in(const Policy& policy);

  /// `gid` is the group that the user submits with, which may stand in no list of members.
  Person find(uid_t uid, gid_t gid) const;

 private:
  Status add_user(const std::string& name);
  Status add_group(const std::string& name);

  std::map<uid_t, Person> people_;
  std::map<gid_t, std::string> groups_;
};

}  // namespace bellows
