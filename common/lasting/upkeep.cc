// SPDX-License-Identifier: Apache-2.0
#include "common/lasting/upkeep.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "common/directory.h"
#include "common/lasting/layout.h"
#include "common/resolved.h"

namespace bellows::lasting {
namespace {

/// Of names that no container has.
constexpr std::string_view kGone = ".gone-";
constexpr int kDeepest = 256;

/// A descriptor of its own: the others' place in the directory is theirs.
Directory read(int directory) {
  return read_directory(Fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
}

std::vector<std::string> names_in(int directory) {
  std::vector<std::string> names;
  const Directory dir = read(directory);
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr)
    if (!is_dots(entry->d_name)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t bytes_below(int directory, int depth) {
  std::uint64_t bytes = 0;
  const Directory dir = read(directory);
  while (const dirent* entry = dir && depth < kDeepest ? ::readdir(dir.get()) : nullptr) {
    struct stat info {};
    if (is_dots(entry->d_name) ||
        ::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    if (!S_ISDIR(info.st_mode)) continue;
    if (const auto below = open_child(::dirfd(dir.get()), entry->d_name))
      bytes += bytes_below(below->get(), depth + 1);
  }
  return bytes;
}

/// False: something is left.
bool remove_below(int parent, const char* name, int depth) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;
  if (depth > kDeepest) return false;
  // What an overlay works in is closed to its own owner.
  auto directory = open_child(parent, name);
  if (!directory && ::fchmodat(parent, name, 0700, 0) == 0) directory = open_child(parent, name);
  if (!directory) return false;
  // Its owner need not be able to change it.
  (void)::fchmod(directory->get(), 0700);
  bool clean = true;
  for (const std::string& below : names_in(directory->get()))
    clean = remove_below(directory->get(), below.c_str(), depth + 1) && clean;
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 && clean;
}

/// Nothing: it can't be seen.
std::optional<std::int64_t> last_use(int directory) {
  struct stat info {};
  if (::fstatat(directory, kLock, &info, AT_SYMLINK_NOFOLLOW) != 0 &&
      ::fstat(directory, &info) != 0)
    return std::nullopt;
  return info.st_mtim.tv_sec;
}

/// To be tried, not to be made; a FIFO in its place must not hang its reader.
Fd open_lock(int directory) {
  return Fd(::openat(directory, kLock, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

Listed listed(int users, const std::string& name, int directory) {
  Listed entry;
  entry.name = name;
  if (const auto origin = origin_of(users, name); origin && *origin) entry.image = (*origin)->image;
  entry.bytes = bytes_below(directory, 0);
  entry.used = last_use(directory).value_or(0);
  const Fd lock = open_lock(directory);
  entry.in_use = lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (entry.in_use) entry.job = job_in(directory);
  return entry;
}

Status move_away(int users, const std::string& name, std::string& gone) {
  const auto directory = open_child(users, name);
  if (!directory) {
    if (directory.error().kind == ErrorKind::not_found)
      return Error{ErrorKind::not_found, fmt::format("there is no container {}", name)};
    // Whatever it is, it is none, and goes under its name.
    gone = name;
    return {};
  }
  const Fd lock = open_lock(directory->get());
  if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return in_use(name, job_in(directory->get()));
  gone = fmt::format("{}{}-{}", kGone, name, ::getpid());
  if (::renameat(users, name.c_str(), users, gone.c_str()) != 0)
    return errno_error("remove the container", name);
  return {};
}

}  // namespace

Result<std::vector<Listed>> list(int users) {
  std::vector<Listed> all;
  for (const std::string& name : names_in(users)) {
    if (!is_name(name)) continue;
    if (const auto directory = open_child(users, name))
      all.push_back(listed(users, name, directory->get()));
  }
  return all;
}

std::uint64_t bytes_of_all(int users) { return bytes_below(users, 0); }

Status remove(int users, const std::string& name) {
  if (!is_name(name))
    return Error{ErrorKind::invalid, fmt::format("\"{}\" is not the name of a container", name)};
  std::string gone;
  if (auto status = move_away(users, name, gone); !status.ok()) return status;
  if (remove_below(users, gone.c_str(), 0)) return {};
  return Error{ErrorKind::io, fmt::format("the container {} could not be removed completely; the "
                                          "rest of it is {}",
                                          name, gone)};
}

Result<std::vector<std::string>> remove_older(int users, std::int64_t before) {
  std::vector<std::string> removed;
  for (const std::string& name : names_in(users)) {
    if (name.starts_with(kGone)) (void)remove_below(users, name.c_str(), 0);
    if (!is_name(name)) continue;
    const auto directory = open_child(users, name);
    const auto used = directory ? last_use(directory->get()) : std::nullopt;
    if (!used || *used >= before) continue;
    const auto status = remove(users, name);
    if (status.ok()) removed.push_back(name);
    if (!status.ok() && status.error().kind != ErrorKind::busy) return status.error();
  }
  return removed;
}

}  // namespace bellows::lasting
