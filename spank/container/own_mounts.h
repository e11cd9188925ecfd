// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/fd.h"
#include "common/result.h"

/// What a container was made with, as a task finds it that joins: not what an image's user has made
/// of the names since. A directory that serves as an image can be rearranged under its container,
/// and mounts move with the directories that they are on: a name may then lead to what the user
/// made himself, or to another mount, which must not be changed in its place.
namespace bellows::container {

/// The kernel's numbers of a container's own mounts. A mount goes, also from here, when who may
/// change a directory image removes the directory that it is on; before Linux 6.8 its number is
/// then free, and nothing is mounted in a container once it is made. A value.
struct OwnMounts {
  std::uint64_t dev = 0;
  std::uint64_t proc = 0;

  bool operator==(const OwnMounts&) const = default;
};

/// "DEV PROC", to be kept with a container.
std::string own_text(const OwnMounts& own);
/// An error (denied) for any other text.
Result<OwnMounts> parse_own(std::string_view text);

/// What `name` ("/dev", "/proc") below `root` leads to, if that is the root of the mount of this
/// number; else an error (denied). The numbers hold in the container's namespace, not in a copy.
Result<Fd> open_own(int root, const char* name, std::uint64_t number);

/// In a copy of the namespace: the same directory as `original`, which open_own() opened before in
/// the container's, and nothing else of that name. For file systems with one mount in a container,
/// as its /dev is, and not its /proc.
Result<Fd> open_same(int root, const char* name, int original);

}  // namespace bellows::container
