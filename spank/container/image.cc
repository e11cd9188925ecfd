// SPDX-License-Identifier: Apache-2.0
#include "spank/container/image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/capability.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "common/text.h"
#include "spank/container/capabilities.h"
#include "spank/container/mount_api.h"

namespace bellows::container {
namespace {

constexpr int kMostTries = 32;  // others may take the free loop device first

/// The head of a squashfs file, little-endian (Documentation/filesystems/squashfs.rst).
struct Superblock {
  std::uint32_t magic;
  std::uint8_t between[24];
  std::uint16_t major;
  std::uint16_t minor;
  std::uint64_t root_inode;
  std::uint64_t bytes_used;
};
static_assert(sizeof(Superblock) == 48);
constexpr std::uint32_t kMagic = 0x73717368;
constexpr std::uint16_t kMajor = 4;

Status check_content(const Image& image, off_t size) {
  auto fd = read_image(image);
  if (!fd) return fd.error();
  Superblock head{};
  const ssize_t n = ::pread(fd->get(), &head, sizeof head, 0);
  if (n < 0) return errno_error("read the image", image.path);
  if (n != sizeof head || head.magic != kMagic)
    return Error{ErrorKind::invalid, image.path + " is not a squashfs image"};
  if (head.major != kMajor)
    return Error{ErrorKind::invalid,
                 fmt::format("{} is squashfs version {}; only version 4 is supported", image.path,
                             static_cast<unsigned>(head.major))};
  if (size < 0 || head.bytes_used > static_cast<std::uint64_t>(size))
    return Error{ErrorKind::corrupt,
                 fmt::format("the image {} is truncated: {} of {} bytes; copy it again", image.path,
                             size, head.bytes_used)};
  return {};
}

Error distrusted(const std::string& path, std::string_view why) {
  return Error{ErrorKind::denied,
               fmt::format("the directory {} is refused as a place for squashfs images: {}; tell "
                           "the administrator, or use a directory as the image",
                           path, why)};
}

Error moved(const std::string& path) {
  return Error{ErrorKind::unavailable,
               fmt::format("the image {} was moved while it was being checked", path)};
}

Error no_image(const std::string& path) {
  return Error{ErrorKind::invalid, path + " is neither a squashfs file nor a directory"};
}

/// Who could change a directory could give the kernel another file than its administrator's.
Status check_directory(int fd, uid_t owner) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("look at", "a directory of images");
  const bool by_others = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (info.st_mode & S_ISVTX) == 0;
  if ((info.st_uid == 0 || info.st_uid == owner) && !by_others) return {};
  const auto path = path_of(fd);
  return distrusted(
      path ? *path : "that it lies in",
      "somebody other than root or the owner of the directory in image_dirs may change it");
}

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// The site's directory, whose owner is trusted, and all above it.
Status check_above(int dir, uid_t owner) {
  struct statfs system {};
  if (::fstatfs(dir, &system) != 0) return errno_error("look at", "a directory of images");
  if (system.f_type == FUSE_SUPER_MAGIC) {
    const auto path = path_of(dir);
    return distrusted(path ? *path : "of the image",
                      "it is on a FUSE file system, whose server may change what the kernel reads");
  }
  Fd at(::openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  while (true) {
    struct stat here {};
    struct stat above {};
    if (!at || ::fstat(at.get(), &here) != 0 || ::fstatat(at.get(), "..", &above, 0) != 0)
      return errno_error("look at", "what is above a directory of images");
    if (auto status = check_directory(at.get(), owner); !status) return status;
    if (is_same(here, above)) return {};
    at = Fd(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
}

/// What lies between them, by the names that lead to the file now: links may have led there.
Status check_between(int dir, uid_t owner, const Image& image, const struct stat& file) {
  const auto top = path_of(dir);
  const auto whole = path_of(image.fd.get());
  if (!top || !whole) return top ? whole.error() : top.error();
  const std::string prefix = top->ends_with('/') ? *top : *top + '/';
  if (!whole->starts_with(prefix)) return moved(image.path);
  const auto names = split(std::string_view(*whole).substr(prefix.size()), '/');
  Fd at(::openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    at = Fd(::openat(at.get(), std::string(names[i]).c_str(),
                     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at) return errno_error("look at the directories of", image.path);
    if (auto status = check_directory(at.get(), owner); !status) return status;
  }
  struct stat found {};
  if (::fstatat(at.get(), std::string(names.back()).c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
      !is_same(found, file))
    return moved(image.path);
  return {};
}

/// A squashfs file that somebody other than the administrator can write to could attack the kernel.
Status check_owner(const Image& image, const struct stat& file, const struct stat& dir) {
  const bool trusted = file.st_uid == 0 || file.st_uid == dir.st_uid;
  // The group's bits are also the most that an access list gives to others.
  const bool by_others = (file.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const bool by_user = ::getuid() != 0 && (file.st_uid == ::getuid() || may(image.fd.get(), W_OK));
  if (trusted && !by_others && !by_user) return {};
  return Error{ErrorKind::denied,
               fmt::format("the image {} is refused: only its administrator may own it or write "
                           "to it, since the kernel trusts what is in it; use a directory instead",
                           image.path)};
}

/// A path below one of `site.image_dirs`, by its text; what it leads to is seen later.
struct InSite {
  Fd dir;
  std::string rest;
};

bool is_below(const std::string& path, std::string dir, std::string& rest) {
  while (dir.ends_with('/')) dir.pop_back();
  dir += '/';
  if (!path.starts_with(dir)) return false;
  rest = path.substr(dir.size());
  return true;
}

/// Without a directory in the answer: in none of them.
Result<InSite> find_in_site(const std::string& path, const Site& site) {
  InSite found;
  for (const auto& dir : site.image_dirs) {
    if (!is_below(path, dir, found.rest)) continue;
    found.dir = Fd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!found.dir) return errno_error("open the directory of images", dir);
    return found;
  }
  return found;
}

/// The same for a path without links, while those of the site may be links themselves.
InSite find_real(const std::string& path, const Site& site) {
  for (const auto& dir : site.image_dirs) {
    InSite found{Fd(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), {}};
    const auto real = found.dir ? path_of(found.dir.get()) : Result<std::string>("");
    if (real && !real->empty() && is_below(path, *real, found.rest)) return found;
  }
  return {};
}

Error not_in_site(const std::string& path, const Site& site) {
  if (site.image_dirs.empty())
    return Error{ErrorKind::denied,
                 fmt::format("{}: squashfs images are not allowed here, since the administrator "
                             "has named no directory for them; use a directory as the image",
                             path)};
  return Error{ErrorKind::denied,
               fmt::format("{}: squashfs images must lie in {}; or use a directory as the image",
                           path, fmt::join(site.image_dirs, " or "))};
}

Result<Image> open_squashfs(const std::string& path, const InSite& place) {
  const int dir = place.dir.get();
  auto fd = open_in_mount(dir, place.rest, O_PATH);
  if (!fd)
    return Error{fd.error().kind,
                 fmt::format("{} (image {}, which must not lead out of its directory, nor into "
                             "what is mounted in it)",
                             fd.error().text, path)};
  Image image{path, std::move(*fd), true, true, false};
  struct stat file {};
  struct stat dir_info {};
  if (::fstat(image.fd.get(), &file) != 0 || ::fstat(dir, &dir_info) != 0)
    return errno_error("look at", path);
  if (!S_ISREG(file.st_mode)) return no_image(path);
  auto status = check_above(dir, dir_info.st_uid);
  if (status) status = check_between(dir, dir_info.st_uid, image, file);
  if (status) status = check_owner(image, file, dir_info);
  if (status) status = check_content(image, file.st_size);
  if (!status) return status.error();
  return image;
}

/// Nothing is asked of who owns it: the kernel never reads it as a file system.
Result<Image> open_own(const std::string& path, Fd fd, const struct stat& file, const Site& site) {
  if (!S_ISREG(file.st_mode)) return no_image(path);
  if (site.squashfuse.empty()) return not_in_site(path, site);
  Image image{path, std::move(fd), true, true, true};
  if (auto status = check_content(image, file.st_size); !status) return status.error();
  return image;
}

Result<Image> open_file_image(const std::string& path, Fd fd, const struct stat& file,
                              const Site& site) {
  const auto named = find_in_site(path, site);
  if (!named) return named.error();
  if (named->dir) return open_squashfs(path, *named);
  const auto real = path_of(fd.get());
  if (!real) return real.error();
  const InSite place = find_real(*real, site);
  if (!place.dir) return open_own(path, std::move(fd), file, site);
  auto image = open_squashfs(path, place);
  struct stat found {};
  if (!image) return image;
  if (::fstat(image->fd.get(), &found) != 0) return errno_error("look at", path);
  return is_same(found, file) ? std::move(image) : Result<Image>(moved(path));
}

Result<Image> open_directory(const std::string& path, Fd fd) {
  if (!may(fd.get(), R_OK | X_OK)) return errno_error("use the image", path);
  auto mounts = has_mounts_below(fd.get());
  if (!mounts) return mounts.error();
  if (*mounts)
    return Error{ErrorKind::denied,
                 fmt::format("the image {} has other file systems mounted in it, which would be "
                             "left out; name a directory without",
                             path)};
  return Image{path, std::move(fd), false, false};
}

/// Root's nodes, by names that nobody else can give.
Result<Fd> open_loop(const std::string& path) {
  auto raised = Raised::raise(CAP_DAC_OVERRIDE);
  if (!raised) return raised.error();
  return open_file(path, O_RDONLY);
}

Status no_loop(const std::string& path) {
  return errno_error("get a loop device for the image", path);
}

/// The device that reads `image`, in `loop`; it is given back when the last descriptor and mount
/// of it are gone.
Status bind_loop(const Image& image, std::string& name, Fd& loop) {
  auto file = read_image(image);
  if (!file) return file.error();
  auto control = open_loop("/dev/loop-control");
  if (!control) return control.error();
  struct loop_config config {};
  config.fd = static_cast<std::uint32_t>(file->get());
  config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  std::strncpy(reinterpret_cast<char*>(config.info.lo_file_name), image.path.c_str(),
               LO_NAME_SIZE - 1);
  for (int tries = 0; tries < kMostTries; tries++) {
    const int number = ::ioctl(control->get(), LOOP_CTL_GET_FREE);
    if (number < 0) return no_loop(image.path);
    name = fmt::format("/dev/loop{}", number);
    auto device = open_loop(name);
    if (!device) return device.error();
    if (::ioctl(device->get(), LOOP_CONFIGURE, &config) == 0) {
      loop = std::move(*device);
      return {};
    }
    if (errno != EBUSY) return no_loop(image.path);
  }
  errno = EBUSY;
  return no_loop(image.path);
}

Result<Fd> mount_squashfs(const Image& image) {
  std::string name;
  Fd loop;
  if (auto status = bind_loop(image, name, loop); !status) return status.error();
  MountFlags flags;
  flags.read_only = true;
  auto mount = new_filesystem("squashfs", {{"source", name}, {"ro", ""}}, flags);
  if (!mount) return Error{mount.error().kind, image.path + ": " + mount.error().text};
  return mount;
}

}  // namespace

bool may_be_own(const std::string& path, const Site& site) {
  std::string rest;
  return !site.squashfuse.empty() && path.starts_with('/') &&
         std::none_of(site.image_dirs.begin(), site.image_dirs.end(),
                      [&](const auto& dir) { return is_below(path, dir, rest); });
}

Result<Fd> read_image(const Image& image) {
  Fd fd(::open(descriptor_path(image.fd.get()).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return errno_error("read the image", image.path);
  return fd;
}

Result<Image> open_image(const std::string& path, const Site& site) {
  auto fd = open_source(path);
  if (!fd) return fd.error();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  if (S_ISDIR(info.st_mode)) return open_directory(path, std::move(*fd));
  return open_file_image(path, std::move(*fd), info, site);
}

Result<Image> open_imported_image(const std::string& path) {
  auto fd = open_source(path);
  if (!fd) return fd.error();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return errno_error("look at", path);
  // A file would be the kernel's to read, and this one is the user's.
  if (!S_ISDIR(info.st_mode))
    return Error{ErrorKind::denied, path + " is not the root directory of an image"};
  auto image = open_directory(path, std::move(*fd));
  if (image) image->shared = true;
  return image;
}

Result<Fd> mount_image(const Image& image, bool writable) {
  if (image.own) return Error{ErrorKind::internal, image.path + " must not be read by the kernel"};
  if (image.squashfs) return mount_squashfs(image);
  MountFlags flags;
  flags.read_only = !writable;
  return clone_mount(image.fd.get(), image.path, false, flags);
}

}  // namespace bellows::container
