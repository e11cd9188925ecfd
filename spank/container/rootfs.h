// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/container/spec.h"
#include "common/result.h"
#include "spank/container/accounts.h"
#include "spank/container/devices.h"
#include "spank/container/image.h"
#include "spank/container/own_mounts.h"
#include "spank/container/phases.h"
#include "spank/container/user_mounts.h"

namespace bellows::container {

/// What a container is made of besides the image and what was asked for.
struct RootfsInputs {
  /// A directory of the caller's mount namespace (O_PATH, opened after it was unshared), to be
  /// hidden below a file system while the container is made in it.
  int scratch = -1;
  Account account;              ///< of the caller
  std::string home;             ///< what mount_home mounts; empty: nothing
  std::string imported;         ///< root directory of an image in a registry; empty: none
  std::string console;          ///< path of the step's terminal; empty: none
  std::vector<Device> devices;  ///< further nodes of /dev: the job's GPUs
  std::vector<PlacedMount>
      mounts;     ///< after the system's and before the user's: the driver's files
  int kept = -1;  ///< a writable root that another container had, detached; instead of the image
  /// Where what is written to an image that is not written to itself is kept, detached; -1: in
  /// memory. The directories `upper` and `work` in it are made, or found from another job.
  int layer = -1;
  /// Does its argument where the sources of the user's mounts are looked for, and comes back;
  /// empty: they are looked for here.
  std::function<Status(const std::function<Status()>& open)> at_sources;
  /// Mounts an image that is `own`, detached. It may leave the mount namespace and come back.
  std::function<Result<Fd>(const Image& image)> mount_own;
};

/// A value.
struct BuiltRoot {
  OwnMounts own;         ///< the container's /dev and /proc
  bool layered = false;  ///< what is written to its root lies in a layer of its own
};

/// Makes the container of `spec` and enters it: afterwards it is all of the caller's mount
/// namespace, and the working directory is the one of `spec`. The namespace is the caller's own,
/// with private propagation, and has the host's tree (or the job's view of it): from there come
/// /proc, /sys (read-only), /tmp, /var/tmp, /dev/shm, the devices, and the files of /etc that tell
/// of the network.
///
/// A squashfs is never written to. If it is to be writable, or lacks a mount's target, the root is
/// an overlay; what is written is in memory, of the size of the private /tmp at most, and gone with
/// the container, unless there is a layer for it. On such a root the image's files of root's are
/// the user's (Linux 6.2), or can at least be replaced by the user. A directory is written to
/// itself, where its user may.
///
/// The caller is the job's user with CAP_SYS_ADMIN and CAP_DAC_OVERRIDE permitted. Paths are opened
/// with the user's rights alone. After an error the namespace is of no use.
Result<BuiltRoot> build_rootfs(const Spec& spec, const Site& site, const RootfsInputs& inputs,
                               Phases& phases);

}  // namespace bellows::container
