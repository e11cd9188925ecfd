// SPDX-License-Identifier: Apache-2.0
#include "spank/container/mount_api.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>

#include "common/resolved.h"
#include "common/text.h"

namespace bellows::container {
namespace {

constexpr int kMostLinks = 40;  // as the kernel has it
constexpr std::size_t kMostMountinfo = 16U << 20;

std::uint64_t attributes(MountFlags flags) {
  std::uint64_t set = MOUNT_ATTR_NOSUID;
  if (!flags.devices) set |= MOUNT_ATTR_NODEV;
  if (flags.read_only) set |= MOUNT_ATTR_RDONLY;
  if (flags.no_exec) set |= MOUNT_ATTR_NOEXEC;
  if (flags.no_atime) set |= MOUNT_ATTR_NOATIME;
  if (flags.no_dir_atime) set |= MOUNT_ATTR_NODIRATIME;
  return set;
}

/// What the kernel has to say about a file system that it did not mount.
std::string kernel_log(int fs) {
  std::string log;
  char line[512];
  ssize_t n = 0;
  while ((n = ::read(fs, line, sizeof line)) > 0) {
    std::string_view text(line, static_cast<std::size_t>(n));
    // "e text", "w text" or "i text"
    if (text.size() > 2 && text[1] == ' ') text.remove_prefix(2);
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    log += fmt::format("{}{}", log.empty() ? "" : ", ", text);
  }
  return log;
}

Error filesystem_error(int fs, const char* what, std::string_view type) {
  Error error = errno_error(what, type);
  if (const std::string log = kernel_log(fs); !log.empty()) error.text += fmt::format(" ({})", log);
  return error;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "/"));
}

Result<std::string> link_text(int link, const std::string& path) {
  char text[PATH_MAX];
  const ssize_t n = ::readlinkat(link, "", text, sizeof text);
  if (n < 0) return errno_error("read the link", path);
  if (n == sizeof text) return Error{ErrorKind::invalid, path + ": the link is too long"};
  return std::string(text, static_cast<std::size_t>(n));
}

/// Makes `names`, directories but the last if it is a file. Each is looked up without following
/// any link: one that appears meanwhile is an error.
Status create_missing(int root, const std::vector<std::string>& names, bool directory) {
  constexpr std::uint64_t no_links = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;
  std::string parent = ".";
  for (std::size_t i = 0; i < names.size(); i++) {
    auto dir = open_resolved(root, parent, O_PATH | O_DIRECTORY, no_links);
    if (!dir) return dir.error();
    const bool file = i + 1 == names.size() && !directory;
    const int made = file ? ::mknodat(dir->get(), names[i].c_str(), S_IFREG | 0644, 0)
                          : ::mkdirat(dir->get(), names[i].c_str(), 0755);
    if (made != 0 && errno != EEXIST)
      return errno_error("create", parent == "." ? names[i] : parent + "/" + names[i]);
    parent = i == 0 ? names[i] : parent + "/" + names[i];
  }
  return {};
}

std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  for (const auto name : split(path, '/'))
    if (!name.empty() && name != ".") names.emplace_back(name);
  return names;
}

/// As mountinfo has it: "\\040" for a space.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++) {
    if (text[i] != '\\' || i + 3 >= text.size()) {
      out += text[i];
      continue;
    }
    out +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
    i += 3;
  }
  return out;
}

Status change_mount(int mount, mount_attr attr, std::string_view what, std::string_view path,
                    unsigned below = 0) {
  if (::mount_setattr(mount, "", AT_EMPTY_PATH | below, &attr, sizeof attr) != 0)
    return errno_error(what, path);
  return {};
}

}  // namespace

std::string option_words(MountFlags flags) {
  return fmt::format("{},nosuid{}{}{}{}", flags.read_only ? "ro" : "rw",
                     flags.devices ? "" : ",nodev", flags.no_exec ? ",noexec" : "",
                     flags.no_atime ? ",noatime" : "", flags.no_dir_atime ? ",nodiratime" : "");
}

Result<Fd> clone_mount(int from, std::string_view path, bool recursive, MountFlags flags) {
  const unsigned int below = recursive ? AT_RECURSIVE : 0;
  Fd mount(::open_tree(from, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | below));
  if (!mount) return errno_error("clone the mount of", path);
  struct mount_attr attr {};
  attr.attr_set = attributes(flags);
  // One of several settings, which the kernel changes only as a whole.
  if (flags.no_atime) attr.attr_clr = MOUNT_ATTR__ATIME;
  attr.propagation = MS_PRIVATE;
  auto status = change_mount(mount.get(), attr, "set the mount flags of", path, AT_RECURSIVE);
  return status.ok() ? std::move(mount) : Result<Fd>(status.error());
}

Result<Fd> new_filesystem(const char* type,
                          const std::vector<std::pair<std::string, std::string>>& options,
                          MountFlags flags) {
  const Fd fs(::fsopen(type, FSOPEN_CLOEXEC));
  if (!fs) return errno_error("open a file system of type", type);
  for (const auto& [key, value] : options) {
    const bool flag = value.empty();
    if (::fsconfig(fs.get(), flag ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING, key.c_str(),
                   flag ? nullptr : value.c_str(), 0) != 0)
      return filesystem_error(fs.get(), "set an option of", fmt::format("{} {}", type, key));
  }
  if (::fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return filesystem_error(fs.get(), "create", type);
  Fd mount(::fsmount(fs.get(), FSMOUNT_CLOEXEC, static_cast<unsigned int>(attributes(flags))));
  if (!mount) return filesystem_error(fs.get(), "mount", type);
  return mount;
}

Status attach(int mount, int target, std::string_view path) {
  if (::move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    return errno_error("mount on", path);
  return {};
}

Status set_read_only(int mount, std::string_view path) {
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_RDONLY;
  return change_mount(mount, attr, "make read-only", path);
}

Status set_writable(int mount, std::string_view path) {
  struct mount_attr attr {};
  attr.attr_clr = MOUNT_ATTR_RDONLY;
  return change_mount(mount, attr, "make writable", path);
}

Status set_unbindable(int mount, std::string_view path) {
  struct mount_attr attr {};
  attr.propagation = MS_UNBINDABLE;
  return change_mount(mount, attr, "make unbindable", path, AT_RECURSIVE);
}

Result<Fd> open_source(const std::string& path) {
  if (!path.starts_with('/')) return Error{ErrorKind::invalid, path + " is not an absolute path"};
  // An automounter's directory is mounted only for those who want a directory.
  auto fd = open_resolved(AT_FDCWD, path, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
  if (fd) return fd;
  return open_resolved(AT_FDCWD, path, O_PATH, RESOLVE_NO_MAGICLINKS);
}

bool may(int fd, int rights) {
  // Without AT_EACCESS: the real user's rights, no capabilities.
  return ::faccessat(fd, "", rights, AT_EMPTY_PATH) == 0;
}

Result<std::string> path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(descriptor_path(fd).c_str(), path, sizeof path);
  if (n < 0 || n == sizeof path) return errno_error("read the path of", "a descriptor");
  return std::string(path, static_cast<std::size_t>(n));
}

Result<std::vector<MountPoint>> mount_points(const std::string& process) {
  const auto table = read_file(fmt::format("/proc/{}/mountinfo", process), kMostMountinfo);
  if (!table) return table.error();
  std::vector<MountPoint> points;
  for (const auto line : split(*table, '\n')) {
    // ID, parent, device, root, mount point
    const auto fields = split(line, ' ');
    if (fields.size() >= 5) points.push_back({std::string(fields[2]), unescaped(fields[4])});
  }
  return points;
}

Result<bool> has_mounts_below(int directory) {
  auto path = path_of(directory);
  if (!path) return path.error();
  std::string below = *std::move(path);
  if (!below.ends_with('/')) below += '/';
  const auto points = mount_points("self");
  if (!points) return points.error();
  return std::any_of(points->begin(), points->end(), [&below](const MountPoint& point) {
    return point.path.size() > below.size() && point.path.starts_with(below);
  });
}

Result<Fd> open_in_root(int root, std::string_view path, int flags) {
  return open_resolved(root, path.empty() ? "." : std::string(path), flags,
                       RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

Result<Fd> open_beneath(int root, std::string_view path, int flags) {
  return open_resolved(root, path.empty() ? "." : std::string(path), flags,
                       RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

Result<Fd> open_in_mount(int root, std::string_view path, int flags) {
  return open_resolved(root, path.empty() ? "." : std::string(path), flags,
                       RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);
}

Status unmount_all(int parent, const std::string& name) {
  const std::string path = fmt::format("{}/{}", descriptor_path(parent), name);
  while (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  return errno == EINVAL || errno == ENOENT ? Status() : errno_error("unmount", name);
}

Status unmount_in(int parent, const std::string& name) {
  if (::fchdir(parent) != 0 || ::umount2(name.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
    return errno_error("unmount", name);
  return {};
}

Result<std::uint64_t> mount_number(int fd, std::string_view path) {
  // STATX_MNT_ID_UNIQUE, which <sys/stat.h> may not have: a kernel before 6.8 gives the other.
  constexpr unsigned unique = 0x4000;
  struct statx info {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID | unique, &info) != 0)
    return errno_error("look at", path);
  if ((info.stx_mask & (STATX_MNT_ID | unique)) == 0)
    return Error{ErrorKind::unavailable,
                 "this kernel does not number mounts; Linux 5.8 and later do"};
  return info.stx_mnt_id;
}

Result<std::string> resolve_links(int root, std::string_view path) {
  std::vector<std::string> found;
  const auto names = names_of(path);
  std::deque<std::string> left(names.begin(), names.end());
  int links = 0;
  while (!left.empty()) {
    const std::string name = left.front();
    left.pop_front();
    if (name == "..") {
      if (!found.empty()) found.pop_back();
      continue;
    }
    found.push_back(name);
    auto fd = open_resolved(root, joined(found), O_PATH | O_NOFOLLOW,
                            RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
    struct stat info {};
    if (!fd && fd.error().kind == ErrorKind::not_found) continue;
    if (!fd) return fd.error();
    if (::fstat(fd->get(), &info) != 0) return errno_error("look at", path);
    if (!S_ISLNK(info.st_mode)) continue;
    if (++links > kMostLinks)
      return Error{ErrorKind::invalid, fmt::format("{}: too many links", path)};
    auto text = link_text(fd->get(), std::string(path));
    if (!text) return text;
    if (text->starts_with('/'))
      found.clear();
    else
      found.pop_back();
    const auto more = names_of(*text);
    left.insert(left.begin(), more.begin(), more.end());
  }
  return joined(found);
}

Result<Fd> open_target(int root, std::string_view path, bool directory, bool create) {
  const int flags = O_PATH | (directory ? O_DIRECTORY : 0);
  auto fd = open_in_root(root, path, flags);
  if (fd || !create || fd.error().kind != ErrorKind::not_found) return fd;
  auto real = resolve_links(root, path);
  if (!real) return real.error();
  if (auto status = create_missing(root, names_of(*real), directory); !status)
    return status.error();
  return open_in_root(root, path, flags);
}

Status enter_directory(int root, std::string_view path) {
  auto dir = open_in_root(root, path, O_PATH | O_DIRECTORY);
  if (!dir) return dir.error();
  if (::fchdir(dir->get()) != 0) return errno_error("enter", path);
  return {};
}

std::string descriptor_path(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

}  // namespace bellows::container
