// SPDX-License-Identifier: Apache-2.0
#include "image/unpack/tree.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common/directory.h"
#include "common/text.h"

namespace bellows::image {
namespace {

constexpr std::string_view kDots = "..";

Error bad(std::string_view name, std::string_view why) {
  return {ErrorKind::invalid,
          fmt::format("a layer has the file \"{}\": {}", one_line(name, 256), why)};
}

Error too_deep(std::string_view name, const Limits& limits) {
  return bad(name, fmt::format("it lies deeper than {} directories", limits.depth));
}

/// The kernel takes a link in the tree as one of the tree, whatever it says. `further`: how else it
/// resolves them.
Fd open_in(const Fd& root, const std::string& path, std::uint64_t further) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | further;
  return Fd(static_cast<int>(
      ::syscall(SYS_openat2, root.get(), path.empty() ? "." : path.c_str(), &how, sizeof how)));
}

/// Whether at least `depth` directories lead from the root to this one.
Result<bool> is_deep(const Fd& root, const Fd& directory, std::size_t depth) {
  struct stat top {};
  struct stat at {};
  if (::fstat(root.get(), &top) != 0) return errno_error("look at", "the image's root");
  Fd above(::openat(directory.get(), ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (; depth > 0; --depth) {
    if (!above || ::fstat(above.get(), &at) != 0)
      return errno_error("look at", "a directory of the image");
    if (at.st_dev == top.st_dev && at.st_ino == top.st_ino) return false;
    above = Fd(::openat(above.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  return true;
}

}  // namespace

/// clean() has counted the names; where links lead, only the directories tell how deep it is.
Result<Fd> Tree::open_directory(const std::string& path) const {
  Fd fd = open_in(root_, path, RESOLVE_NO_SYMLINKS);
  if (fd) return fd;
  if (errno == ELOOP) fd = open_in(root_, path, 0);
  if (!fd) return errno_error("open the image's directory", path);
  const auto deep = is_deep(root_, fd, limits_.depth);
  if (!deep) return deep.error();
  if (*deep) return too_deep(path, limits_);
  return fd;
}

Result<Fd> Tree::reach(const std::string& path, bool make) {
  auto fd = open_directory(path);
  if (fd || !make || fd.error().kind != ErrorKind::not_found) return fd;
  const auto slash = path.rfind('/');
  const std::string above = slash == std::string::npos ? "" : path.substr(0, slash);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const auto parent = reach(above, true);
  if (!parent) return parent.error();
  if (::mkdirat(parent->get(), name.c_str(), 0755) != 0)
    return errno_error("make the image's directory", path);
  return open_directory(path);
}

Result<std::string> Tree::clean(std::string_view name) const {
  if (name.size() > limits_.name_bytes)
    return bad(name, fmt::format("its name is longer than {} bytes", limits_.name_bytes));
  std::string path;
  std::size_t depth = 0;
  for (const std::string_view part : split(name, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == kDots) return bad(name, "its name may not have \"..\"");
    if (++depth > limits_.depth) return too_deep(name, limits_);
    if (!path.empty()) path += '/';
    path += part;
  }
  return path;
}

Result<Tree::Place> Tree::find(std::string_view name, bool make) {
  auto path = clean(name);
  if (!path) return path.error();
  if (path->empty()) return bad(name, "its name is that of the image's root");
  const auto slash = path->rfind('/');
  const std::string above = slash == std::string::npos ? "" : path->substr(0, slash);
  if (!last_directory_ || last_ != above) {
    auto directory = reach(above, make);
    if (!directory) return directory.error();
    last_directory_ = *std::move(directory);
    last_ = above;
  }
  std::string last = slash == std::string::npos ? *path : path->substr(slash + 1);
  return Place{last_directory_.get(), std::move(last), *std::move(path)};
}

Status Tree::clear_directory(Fd directory, const std::string& path,
                             const std::function<bool(const std::string&)>& stays) {
  const int fd = directory.get();
  const Directory entries = read_directory(std::move(directory));
  if (!entries) return errno_error("read the image's directory", path);
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == kDots) continue;
    const std::string whole = path.empty() ? name : path + '/' + name;
    const bool kept = stays(whole);
    if (!kept && ::unlinkat(fd, name.c_str(), 0) == 0) continue;
    Fd inner(::openat(fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inner && kept) continue;
    if (!inner) return errno_error("remove from the image", whole);
    if (auto status = clear_directory(std::move(inner), whole, stays); !status) return status;
    if (!kept && ::unlinkat(fd, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOTEMPTY)
      return errno_error("remove from the image", whole);
  }
  return {};
}

Status Tree::remove(const Place& place) {
  if (::unlinkat(place.directory, place.name.c_str(), 0) == 0 || errno == ENOENT) return {};
  const int at = place.directory;
  Fd inner(::openat(at, place.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner) return errno_error("remove from the image", place.path);
  const auto nothing = [](const std::string&) { return false; };
  if (auto status = clear_directory(std::move(inner), place.path, nothing); !status) return status;
  return ::unlinkat(at, place.name.c_str(), AT_REMOVEDIR) == 0
             ? Status()
             : errno_error("remove from the image", place.path);
}

Status Tree::clear(const std::string& path, const std::function<bool(const std::string&)>& stays) {
  auto directory = open_directory(path);
  if (!directory)
    return directory.error().kind == ErrorKind::not_found ? Status() : directory.error();
  last_directory_.reset();
  return clear_directory(*std::move(directory), path, stays);
}

}  // namespace bellows::image
