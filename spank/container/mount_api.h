// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

/// The mount system calls that work on descriptors (Linux 5.12, glibc 2.36), and paths resolved
/// inside a root: nothing that a user or an image names is ever looked up as a string in a
/// namespace with more in it. Every error names the path it is about. What mounts needs
/// CAP_SYS_ADMIN in the effective set; the look-ups use the caller's rights and no more.
namespace bellows::container {

struct MountFlags {
  bool read_only = false;
  bool no_exec = false;
  bool devices = false;  ///< only for single device nodes and devpts; else nodev
  bool no_atime = false;
  bool no_dir_atime = false;
};

/// As mount(8) shows them: "ro,nosuid,nodev".
std::string option_words(MountFlags flags);

/// A detached copy of what `from` (an O_PATH descriptor) points at; `recursive` with what is
/// mounted below, which gets the flags too. nosuid always; nodev unless flags.devices, and even
/// then where `from` has it. Private.
Result<Fd> clone_mount(int from, std::string_view path, bool recursive, MountFlags flags);

/// A new file system, detached: new_filesystem("tmpfs", {{"size", "64m"}, {"mode", "0755"}}, ...).
/// An option with an empty value is a flag.
Result<Fd> new_filesystem(const char* type,
                          const std::vector<std::pair<std::string, std::string>>& options,
                          MountFlags flags);

/// Puts a detached mount on what `target` (an O_PATH descriptor) points at. Afterwards `mount`
/// is the descriptor of its root.
Status attach(int mount, int target, std::string_view path);

/// Makes one mount read-only, not what is mounted on it.
Status set_read_only(int mount, std::string_view path);
/// And back.
Status set_writable(int mount, std::string_view path);
/// Has a detached mount, and those below it, bound nowhere else.
Status set_unbindable(int mount, std::string_view path);

/// Opens an absolute path of the caller's namespace with O_PATH: for what users name there. Follows
/// links, but none of /proc's, which lead to what the process has open. Mounts it where an
/// automounter serves it.
Result<Fd> open_source(const std::string& path);

/// Whether the real user, without capabilities, has `rights` (R_OK, W_OK, X_OK) to what a
/// descriptor points at.
bool may(int fd, int rights);

/// Where something is mounted, as the process's root and mount namespace have it.
struct MountPoint {
  std::string device;  ///< of the file system: "0:52"
  std::string path;
};

/// `process`: the name of one in /proc, or "self".
Result<std::vector<MountPoint>> mount_points(const std::string& process);

/// Whether anything is mounted below the directory: a clone that is not recursive would show what
/// such mounts hide, a job's own /tmp among them.
Result<bool> has_mounts_below(int directory);

/// Opens `path` (absolute or not) as if `root` were "/": no link, "..", or magic link leads out of
/// it. `flags` as for open, O_CLOEXEC added.
Result<Fd> open_in_root(int root, std::string_view path, int flags);

/// The same, and only what lies under `root`: a link or ".." that leads out is refused.
Result<Fd> open_beneath(int root, std::string_view path, int flags);

/// The same, and nothing that is mounted there.
Result<Fd> open_in_mount(int root, std::string_view path, int flags);

/// What a descriptor's file is called now.
Result<std::string> path_of(int fd);

/// Detaches all that is mounted on `name` in `parent`, also where its server is dead. Success where
/// nothing is.
Status unmount_all(int parent, const std::string& name);

/// Detaches what is mounted on `name` in `parent`: by way of the working directory, which is
/// `parent` afterwards, so also where a user may have made the /proc that unmount_all() relies on.
Status unmount_in(int parent, const std::string& name);

/// `path` in `root` with all links and dots resolved, "a/b/c", or "" for the root: also for what
/// does not exist yet. A name for messages and for places made to fit; what it names may be
/// another thing by the time it is opened.
Result<std::string> resolve_links(int root, std::string_view path);

/// The kernel's number of the mount in which `fd` lies: no other's while `fd` is open, and since
/// Linux 6.8 never another's.
Result<std::uint64_t> mount_number(int fd, std::string_view path);

/// Opens a mount's target as open_in_root does; with `create`, missing directories on the way are
/// made (0755), and at its end an empty file or a directory.
Result<Fd> open_target(int root, std::string_view path, bool directory, bool create);

/// Makes what open_in_root finds the working directory: never by chdir, which would follow
/// /proc/self/fd out of the container.
Status enter_directory(int root, std::string_view path);

/// "/proc/self/fd/N", for calls that know only paths.
std::string descriptor_path(int fd);

}  // namespace bellows::container
