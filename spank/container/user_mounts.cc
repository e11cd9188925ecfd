// SPDX-License-Identifier: Apache-2.0
#include "spank/container/user_mounts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace bellows::container {
namespace {

/// A right to search a directory is enough: what is in it has rights of its own.
bool usable(int fd, bool directory) {
  return may(fd, X_OK) || (!directory && (may(fd, R_OK) || may(fd, W_OK)));
}

MountFlags flags_of(const Mount& mount) {
  MountFlags flags;
  flags.read_only = mount.read_only;
  flags.no_exec = mount.no_exec;
  flags.no_atime = mount.no_atime;
  flags.no_dir_atime = mount.no_dir_atime;
  return flags;
}

Result<PlacedMount> open_tmpfs(const Mount& mount) {
  std::vector<std::pair<std::string, std::string>> options = {
      {"mode", fmt::format("{:o}", mount.mode.value_or(01777))}};
  if (mount.size_mib > 0) options.emplace_back("size", fmt::format("{}m", mount.size_mib));
  if (!mount.huge.empty()) options.emplace_back("huge", mount.huge);
  const MountFlags flags = flags_of(mount);
  auto tmpfs = new_filesystem("tmpfs", options, flags);
  if (!tmpfs) return tmpfs.error();
  return PlacedMount{mount.target, *std::move(tmpfs), true, true, "tmpfs", option_words(flags)};
}

Result<PlacedMount> open_one(const Mount& mount) {
  if (mount.kind == Mount::Kind::umount)
    return PlacedMount{mount.target, Fd(), true, false, "nothing", "unmounted"};
  auto placed = mount.kind == Mount::Kind::tmpfs
                    ? open_tmpfs(mount)
                    : open_bind(mount.source, mount.target, mount.recursive, flags_of(mount));
  if (!placed) return placed;
  placed->create = mount.create;
  if (!mount.unbindable) return placed;
  placed->options += ",unbindable";
  auto status = set_unbindable(placed->mount.get(), mount.target);
  return status.ok() ? std::move(placed) : Result<PlacedMount>(status.error());
}

bool is_proc(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) != 0 || info.f_type == PROC_SUPER_MAGIC;
}

/// Whether both are the same directory in the same mount.
Result<bool> same_place(int one, int other) {
  struct stat first {};
  struct stat second {};
  if (::fstat(one, &first) != 0 || ::fstat(other, &second) != 0)
    return errno_error("look at", "the target of a mount");
  if (first.st_dev != second.st_dev || first.st_ino != second.st_ino) return false;
  const auto mount = mount_number(one, "the target of a mount");
  const auto other_mount = mount_number(other, "the target of a mount");
  if (!mount || !other_mount) return mount ? other_mount.error() : mount.error();
  return *mount == *other_mount;
}

/// Whether a directory below `root` is in a /proc, or in what is mounted upon a part of one. Found
/// upwards, where no name and no link of a user's leads astray.
Result<bool> in_proc(int root, int directory) {
  Fd above;
  for (int place = directory; !is_proc(place); place = above.get()) {
    const auto at_root = same_place(root, place);
    if (!at_root || *at_root) return at_root ? Result<bool>(false) : at_root;
    Fd up(::openat(place, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!up) return errno_error("open", "what is above the target of a mount");
    // Renamed out of a directory image, it has another root above it, which is above itself.
    const auto at_top = same_place(place, up.get());
    if (!at_top) return at_top;
    if (*at_top)
      return Error{ErrorKind::denied, "the target of a mount was moved out of the image"};
    above = std::move(up);
  }
  return true;
}

/// Whether both names lead to the same place.
bool leads_to(int root, const std::string& real, const char* name) {
  const auto own = resolve_links(root, name);
  return own && *own == real;
}

Error refused(const PlacedMount& placed, const char* why) {
  return {ErrorKind::denied, fmt::format("a mount at {} is refused: {}", placed.target, why)};
}

/// The target, `real` without links, if a mount may be there: not the root, nor in /proc, to which
/// an image's links can lead as well as the user's own text, and a mount could deceive those who
/// join. Its directory is opened first and the rest from there, so that both are judged by what
/// they are.
Result<Fd> open_place(int root, const PlacedMount& placed, const std::string& real) {
  if (real.empty()) return refused(placed, "it is the container's root");
  const bool create = placed.mount && placed.create;
  const auto slash = real.rfind('/');
  auto parent =
      open_target(root, slash == std::string::npos ? "/" : real.substr(0, slash), true, create);
  if (!parent) return parent;
  const auto hidden = in_proc(root, parent->get());
  if (!hidden) return hidden.error();
  if (*hidden) return refused(placed, "it is in /proc");
  auto target =
      open_target(parent->get(), real.substr(slash + 1), placed.mount && placed.directory, create);
  if (target && is_proc(target->get())) return refused(placed, "it is in /proc");
  return target;
}

/// Nor is it /dev, where who joins the container later looks for its own.
Result<Fd> open_user_target(int root, const PlacedMount& placed) {
  const auto real = resolve_links(root, placed.target);
  if (!real) return real.error();
  if (placed.mount && leads_to(root, *real, "/dev"))
    return refused(placed,
                   "it is the container's own /dev; mount what is needed below it, as at /dev/x");
  return open_place(root, placed, *real);
}

/// Slurm and programs need them, and so does who joins the container later.
Status check_unmount(int root, const PlacedMount& placed) {
  const auto real = resolve_links(root, placed.target);
  if (!real) return real.error();
  for (const char* needed : {"/dev", "/tmp"})
    if (leads_to(root, *real, needed))
      return Error{ErrorKind::denied,
                   fmt::format("umount:{} is refused: Slurm and programs need the container's {}; "
                               "leave it out of --container-mounts",
                               placed.target, needed)};
  return {};
}

/// What is a part of another mount, a recursive one of "/" say, may hide something.
Status check_own(int target, const std::string& path, const std::vector<int>& own) {
  const auto number = mount_number(target, path);
  if (!number) return number.error();
  for (const int mount : own) {
    const auto one = mount_number(mount, path);
    if (!one) return one.error();
    if (*one == *number) return {};
  }
  return Error{
      ErrorKind::denied,
      fmt::format("umount:{} is refused: what is mounted there is a part of another mount, "
                  "and may hide something; leave it out of --container-mounts",
                  path)};
}

Status unmount(int target, const std::string& path, const std::vector<int>& own) {
  struct statx info {};
  if (::statx(target, "", AT_EMPTY_PATH, 0, &info) != 0) return errno_error("look at", path);
  if ((info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
    return Error{ErrorKind::invalid, fmt::format("nothing is mounted at {}", path)};
  if (auto status = check_own(target, path, own); !status.ok()) return status;
  if (::umount2(descriptor_path(target).c_str(), MNT_DETACH) != 0)
    return errno_error("unmount", path);
  return {};
}

Error not_opened(const Error& error, const PlacedMount& placed) {
  return {error.kind, fmt::format("{} (for the mount at {})", error.text, placed.target)};
}

Status place_at(const PlacedMount& placed, const Result<Fd>& target) {
  if (!target) return not_opened(target.error(), placed);
  struct stat info {};
  if (::fstat(target->get(), &info) != 0) return errno_error("look at", placed.target);
  if (!placed.directory && S_ISDIR(info.st_mode))
    return Error{ErrorKind::invalid,
                 fmt::format("{} is a directory in the container, and what is to "
                             "be mounted there is a file",
                             placed.target)};
  return attach(placed.mount.get(), target->get(), placed.target);
}

}  // namespace

std::string told(const PlacedMount& placed) {
  return fmt::format("{} on {} ({})", placed.source, placed.target, placed.options);
}

Result<PlacedMount> open_bind(const std::string& source, const std::string& target, bool recursive,
                              MountFlags flags) {
  auto fd = open_source(source);
  if (!fd && fd.error().kind == ErrorKind::not_found)
    return Error{ErrorKind::not_found,
                 fmt::format("{} (source path does not exist)", fd.error().text)};
  if (!fd) return fd.error();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return errno_error("look at", source);
  const bool directory = S_ISDIR(info.st_mode);
  if (!usable(fd->get(), directory)) return errno_error("mount", source);
  if (directory && !recursive) {
    auto below = has_mounts_below(fd->get());
    if (!below) return below.error();
    if (*below)
      return Error{ErrorKind::denied,
                   fmt::format("{} has other file systems mounted in it; mount it with rbind "
                               "instead of bind",
                               source)};
  }
  flags.devices = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
  flags.no_exec = flags.no_exec || flags.devices;
  auto mount = clone_mount(fd->get(), source, recursive, flags);
  if (!mount) return mount.error();
  return PlacedMount{target, std::move(*mount), directory, true, source, option_words(flags)};
}

Status add_bind(const std::string& source, const std::string& target, bool read_only,
                std::vector<PlacedMount>& mounts) {
  if (source.empty()) return {};
  auto placed = open_bind(source, target, false, {.read_only = read_only});
  if (!placed) return placed.error();
  mounts.push_back(*std::move(placed));
  return {};
}

Result<std::vector<PlacedMount>> open_user_mounts(const std::vector<Mount>& mounts,
                                                  Phases& phases) {
  std::vector<PlacedMount> all;
  for (const auto& mount : mounts) {
    PlacedMount wanted;
    wanted.target = mount.target;
    wanted.optional = mount.optional;
    wanted.quiet = mount.quiet;
    auto one = open_one(mount);
    if (!one) {
      const Status status = unless_optional(one.error(), wanted, phases);
      if (!status.ok()) return status.error();
      continue;
    }
    one->optional = mount.optional;
    one->quiet = mount.quiet;
    all.push_back(*std::move(one));
  }
  return all;
}

Status unless_optional(const Status& status, const PlacedMount& placed, Phases& phases) {
  if (status.ok() || !placed.optional) return status;
  if (!placed.quiet)
    phases.remark(fmt::format("the container is without the mount at {} (nofail): {}",
                              placed.target, status.error().text));
  return {};
}

Status place_user_mount(int root, const PlacedMount& placed, const std::vector<int>& own) {
  if (placed.mount) return place_at(placed, open_user_target(root, placed));
  if (auto status = check_unmount(root, placed); !status.ok()) return status;
  const auto target = open_user_target(root, placed);
  if (!target) return not_opened(target.error(), placed);
  return unmount(target->get(), placed.target, own);
}

Status place(int root, const PlacedMount& placed) {
  const auto real = resolve_links(root, placed.target);
  return place_at(placed, real ? open_place(root, placed, *real) : Result<Fd>(real.error()));
}

}  // namespace bellows::container
