// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"
#include "spank/container/views.h"

/// What a container may have of its own beside its file tree: network, IPC and host name
/// (--container-unshare), and user namespaces, in which the user is root (--container-remap-root)
/// or, where the site wants that, only itself.
/// Each is pinned as NAME:KIND beside the container's mount namespace NAME; no name of a container
/// has a colon.
namespace bellows::container {

/// A namespace to join. A resource.
struct OwnNamespace {
  int kind;  ///< CLONE_NEW...
  Fd fd;
};

/// Leaves the host's namespaces for what `spec` wants unshared. In a network of its own the
/// loopback device is up. A host name of its own belongs to `root_of`, a user namespace whose root
/// may change it, if that is valid. Needs CAP_SYS_ADMIN, and CAP_NET_ADMIN for the network.
Status leave_for_own(const Spec& spec, const Fd& root_of);

/// Pins what leave_for_own() made, before the mount namespace NAME is pinned; what a dead maker
/// left is forgotten. Needs what JobViews::pin needs.
Status pin_own(const JobViews& views, const std::string& name, const Spec& spec);

/// What the container NAME has. denied: `spec` wants one that it lacks. Needs CAP_DAC_OVERRIDE.
Result<std::vector<OwnNamespace>> find_own(const JobViews& views, const std::string& name,
                                           const Spec& spec);

/// A user namespace in which nobody but the job's user is anybody. A resource.
struct UserSpace {
  Fd fd;
  bool root = false;  ///< the user is root in it
};

/// The one of the container NAME, or one to become it, for `owner` as `root` or not. As root, and
/// without waiting for anyone: if the user made it, it would belong to the user, and any of the
/// user's processes could enter it with all capabilities, even where the site allows users no
/// namespaces.
Result<UserSpace> find_or_make_user(const JobViews& views, const std::string& name, JobOwner owner,
                                    bool root);

/// `user` becomes the container NAME's of its kind, or is that from now on if there was none:
/// one for all its tasks, since ranks in different ones could not read each other's memory.
Status settle_user(const JobViews& views, const std::string& name, UserSpace& user,
                   std::uint32_t wait_seconds);

/// The same for who has the views' lock.
Status settle_user_locked(const JobViews& views, const std::string& name, UserSpace& user);

/// Joins them. Needs CAP_SYS_ADMIN.
Status join_own(const std::vector<OwnNamespace>& namespaces);

}  // namespace bellows::container
