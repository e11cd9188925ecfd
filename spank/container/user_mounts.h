// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/container/spec.h"
#include "common/fd.h"
#include "common/result.h"
#include "spank/container/mount_api.h"
#include "spank/container/phases.h"

/// Mounts made ready as detached ones, with the user's rights and before anything of the container
/// is mounted, and put in their places in it.
namespace bellows::container {

/// A mount and its place in the container. A resource.
struct PlacedMount {
  std::string target;  ///< an absolute path in the container
  Fd mount;            ///< detached; none: what is mounted at the target is unmounted
  bool directory = true;
  bool create = true;  ///< a missing target is made
  std::string source;  ///< for people, as `options` is
  std::string options;
  bool optional = false;  ///< left out where it can't be placed
  bool quiet = false;     ///< and nothing is said of that
};

/// "SOURCE on TARGET (OPTIONS)", for people.
std::string told(const PlacedMount& placed);

/// Opens a source with the caller's rights, so without capabilities: one that the user may neither
/// read, write nor execute is refused. Absolute, in the caller's mount namespace.
Result<PlacedMount> open_bind(const std::string& source, const std::string& target, bool recursive,
                              MountFlags flags);

/// Adds one of those, of a single file or directory; nothing for an empty source.
Status add_bind(const std::string& source, const std::string& target, bool read_only,
                std::vector<PlacedMount>& mounts);

/// In their order. Refused besides: a bind that is not recursive of a directory with mounts below,
/// since it would show what they hide. An optional one that can't be had is missing, which `phases`
/// is told. Needs CAP_SYS_ADMIN.
Result<std::vector<PlacedMount>> open_user_mounts(const std::vector<Mount>& mounts, Phases& phases);

/// Success for an optional mount that failed, which `phases` is told; else `status`.
Status unless_optional(const Status& status, const PlacedMount& placed, Phases& phases);

/// Puts it in its place below `root`, a container's. Refused: the root itself, /dev, and what is in
/// /proc, where a mount could deceive those who join the container. Only `own`, the mounts that the
/// container's maker put there, are unmounted: what is a part of one of them stays.
Status place_user_mount(int root, const PlacedMount& placed, const std::vector<int>& own);

/// The same for mounts that are not the user's, /dev among them.
Status place(int root, const PlacedMount& placed);

}  // namespace bellows::container
