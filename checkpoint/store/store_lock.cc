// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/store/store_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "common/text.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostLocks = 4 << 20;

Error foreign_file(const std::string& path, uid_t owner) {
  return Error{ErrorKind::denied,
               fmt::format("{} belongs to user {}, who could hold its lock forever: remove it, or "
                           "name another checkpoint directory",
                           path, owner)};
}

/// Whose the files of a directory are to be: root works for the directory's user.
uid_t user_of(const std::string& dir) {
  struct stat s;
  return geteuid() == 0 && stat(dir.c_str(), &s) == 0 ? s.st_uid : geteuid();
}

Result<Fd> make_lock_file(const std::string& path, uid_t user) {
  auto fd = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!fd || user == geteuid()) return fd;
  if (fchown(fd->get(), user, static_cast<gid_t>(-1)) < 0) return errno_error("give away", path);
  return fd;
}

// Whoever can open a file can lock it, and keep the lock: so nobody else may open this one.
Result<Fd> open_lock_file(const std::string& dir, const char* name, int access) {
  const std::string path = dir + "/" + name;
  const uid_t user = user_of(dir);
  struct stat s;
  // Another process may make it meanwhile.
  for (int tries = 0;; ++tries) {
    auto fd = open_file(path, access | O_NOFOLLOW | O_NONBLOCK);
    if (!fd && fd.error().kind == ErrorKind::not_found && tries < 3) {
      auto made = make_lock_file(path, user);
      if (!made && errno != EEXIST) return made;
      continue;
    }
    const bool known = fd ? fstat(fd->get(), &s) == 0 : lstat(path.c_str(), &s) == 0;
    if (known && s.st_uid != geteuid() && s.st_uid != user) return foreign_file(path, s.st_uid);
    if (!fd) return fd;
    if (!known || !S_ISREG(s.st_mode))
      return Error{ErrorKind::denied, path + " is not a plain file: remove it"};
    // Made by somebody else's program. A file system without modes may refuse, and then who holds
    // it is said.
    if ((s.st_mode & 0077) != 0) (void)fchmod(fd->get(), 0600);
    return fd;
  }
}

/// The process of a line of /proc/locks that is about this file; empty: of another one, or one that
/// waits.
std::string_view holder_in(std::string_view line, const std::string& file) {
  std::vector<std::string_view> words = split(line, ' ');
  std::erase(words, "");
  return words.size() > 5 && words[5] == file ? words[4] : "";
}

/// "process 4711 of user 1001", as far as this machine knows.
std::string holders_of(int fd) {
  struct stat s;
  auto locks = read_file("/proc/locks", kMostLocks);
  if (fstat(fd, &s) < 0 || !locks) return "";
  const std::string file =
      fmt::format("{:02x}:{:02x}:{}", major(s.st_dev), minor(s.st_dev), s.st_ino);
  std::string out;
  for (std::string_view line : split(*locks, '\n')) {
    const std::string_view process = holder_in(line, file);
    if (process.empty() || out.size() > 200) continue;
    out += fmt::format("{}process {}", out.empty() ? "" : ", ", process);
    if (stat(fmt::format("/proc/{}", process).c_str(), &s) == 0)
      out += fmt::format(" of user {}", s.st_uid);
  }
  return out;
}

Error not_free(int fd, const std::string& path, std::chrono::milliseconds within) {
  const std::string who = holders_of(fd);
  return Error{
      ErrorKind::io,
      fmt::format(
          "{} was not free within {} s: {} holds its lock; end that process, or remove the file "
          "while no program uses the directory",
          path, static_cast<double>(within.count()) / 1000,
          who.empty() ? "a process that cannot be seen from here, perhaps on another machine,"
                      : who)};
}

bool has_no_locks(int code) { return code == ENOLCK || code == EOPNOTSUPP || code == ENOSYS; }

}  // namespace

Result<StoreLock> lock_store(const std::string& dir, std::chrono::milliseconds within) {
  const std::string path = dir + "/.lock";
  auto fd = open_lock_file(dir, ".lock", O_RDWR);
  if (!fd) return fd.error();
  const auto end = std::chrono::steady_clock::now() + within;
  auto pause = 1ms;
  while (flock(fd->get(), LOCK_EX | LOCK_NB) < 0) {
    if (has_no_locks(errno)) {
      return StoreLock{std::move(*fd),
                       fmt::format("{} cannot be locked ({}): only its owner.json keeps two "
                                   "attempts of a job apart; Lustre supports locks if it is "
                                   "mounted with the option flock",
                                   dir, std::strerror(errno))};
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("lock", path);
    if (std::chrono::steady_clock::now() >= end) return not_free(fd->get(), path, within);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, 100ms);
  }
  return StoreLock{std::move(*fd), ""};
}

Result<Fd> hold_store(const std::string& dir) {
  auto fd = open_lock_file(dir, ".in-use", O_RDWR);
  if (!fd) return fd;
  if (flock(fd->get(), LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
    const std::string who = holders_of(fd->get());
    return Error{ErrorKind::busy,
                 fmt::format("another program or job uses the checkpoint directory {}{}", dir,
                             who.empty() ? "" : fmt::format(" ({})", who))};
  }
  return fd;
}

Fd share_store(const std::string& dir) {
  // Nothing held open for writing keeps the file system from being made read-only.
  auto fd = open_lock_file(dir, ".in-use", O_RDONLY);
  if (!fd || flock(fd->get(), LOCK_SH | LOCK_NB) < 0) return {};
  return std::move(*fd);
}

}  // namespace bellows
