// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

/// The mount system calls that work on descriptors (Linux 5.12, glibc 2.36), and paths resolved
/// inside a root: nothing that a user or an image names is ever looked up as a string in a
/// namespace with more in it. Every error names the path it is about.
namespace bellows::container {

struct MountFlags {
  bool read_only = false;
  bool no_exec = false;
  bool devices = false;  ///< only for single device nodes and devpts; else nodev
};

/// A detached copy of what `from` (an O_PATH descriptor) points at; `recursive` with what is mounted
/// below. nosuid always; nodev unless flags.devices. Private.
Result<Fd> clone_mount(int from, std::string_view path, bool recursive, MountFlags flags);

/// A new file system, detached: new_filesystem("tmpfs", {{"size", "64m"}, {"mode", "0755"}}, ...).
Result<Fd> new_filesystem(const char* type,
                          const std::vector<std::pair<std::string, std::string>>& options,
                          MountFlags flags);

/// Puts a detached mount on what `target` (an O_PATH descriptor) points at.
Status attach(int mount, int target, std::string_view path);

/// Opens `path` (absolute or not) as if `root` were "/": no link, "..", or magic link leads out of
/// it. `flags` as for open, O_CLOEXEC added.
Result<Fd> open_in_root(int root, std::string_view path, int flags);

/// The same for a mount's target; with `create`, missing directories on the way are made (0755),
/// and at its end an empty file or a directory.
Result<Fd> open_target(int root, std::string_view path, bool directory, bool create);

}  // namespace bellows::container
