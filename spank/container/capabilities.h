// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

/// The four capabilities with which the job's user builds a container (README.md), by the bare
/// system calls: they concern the calling thread alone. libcap would save nothing here.
namespace bellows::container {

/// As root, whose quota of keys the keyring then counts in: an empty one instead of that of the
/// session in which slurmd was started, which the tasks of all users would share. systemd gives
/// each service one.
Status begin_session_keyring();

/// As root, in task_init_privileged: what is permitted now stays so when the process becomes the
/// user; only effective it is no more. With `close`, the bounding set is emptied too (afterwards
/// nobody could): no program that the task starts gains a capability, by whatever file.
Status keep_for_later(bool close);

/// First thing as the user: of what was kept, all but the four are given up (with `network`, also
/// but CAP_NET_ADMIN, for the loopback device of a network of its own), and no other process of the
/// user's may look into this one until its program starts.
Status keep_only_needed(bool network = false);

/// No program that this process starts from now on gains a capability, by whatever file or user.
/// Needs CAP_SETPCAP.
Status empty_bounding_set();

/// The same, but for what root in a container keeps.
Status limit_bounding_set();

/// Permitted, effective, inheritable and ambient set emptied; what comes next is the user's
/// program.
Status drop_all(bool no_new_privs);

/// The same, but for what root in a container keeps, permitted and effective, in its own user
/// namespace alone. After limit_bounding_set().
Status keep_for_root(bool no_new_privs);

/// Makes one permitted capability effective until the end of its life. A resource.
class Raised {
 public:
  /// `capability` is one of <linux/capability.h>'s.
  static Result<Raised> raise(int capability);

  Raised(Raised&& other) noexcept;
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;
  Raised& operator=(Raised&&) = delete;
  ~Raised();

 private:
  explicit Raised(int capability) : capability_(capability) {}

  int capability_;  ///< -1: nothing to drop: moved from, or effective before
};

}  // namespace bellows::container
