// SPDX-License-Identifier: Apache-2.0
#include "common/lasting/lasting.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "common/lasting/layout.h"
#include "common/resolved.h"
#include "common/text.h"

namespace bellows::lasting {
namespace {

constexpr const char* kMadeFrom = "made-from";
constexpr const char* kJob = "job";
constexpr std::string_view kVersion = "1";
constexpr std::size_t kMostText = 4096;
constexpr int kMostTries = 16;

Error strange(const std::string& name, std::string_view why) {
  return {ErrorKind::denied,
          fmt::format("the container {} cannot be used, since {}; remove it with bellows container "
                      "remove {}, or use another name",
                      name, why, name)};
}

/// Nothing: there is no such link.
Result<std::optional<std::string>> link_text(int directory, const char* name) {
  std::array<char, kMostText> text{};
  const ssize_t n = ::readlinkat(directory, name, text.data(), text.size());
  if (n < 0 && errno == ENOENT) return std::optional<std::string>();
  if (n < 0) return errno_error("read the link", name);
  if (static_cast<std::size_t>(n) == text.size())
    return Error{ErrorKind::corrupt, fmt::format("the link {} is too long", name)};
  return std::optional(std::string(text.data(), static_cast<std::size_t>(n)));
}

bool is_identity(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alphanumeric(c) || c == ':' || c == '-' || c == '.';
  });
}

/// Whether a file is what this room makes, and the caller's own.
bool is_own(int fd, mode_t type) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == type && info.st_uid == ::getuid() &&
         (type == S_IFDIR || info.st_nlink == 1);
}

/// It may have been removed, or renamed away, before it was locked.
bool is_there(int users, const std::string& name, int lock) {
  struct stat mine {};
  struct stat there {};
  return ::fstat(lock, &mine) == 0 &&
         ::fstatat(users, fmt::format("{}/{}", name, kLock).c_str(), &there, AT_SYMLINK_NOFOLLOW) ==
             0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

Result<Fd> open_lock(int directory, const std::string& name) {
  // A FIFO in its place must not hang its reader.
  Fd lock(::openat(directory, kLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!lock) return strange(name, errno_error("open", kLock).text);
  if (!is_own(lock.get(), S_IFREG)) return strange(name, "its lock is no file of its own");
  return lock;
}

Status note_job(int directory, std::uint32_t job) {
  if (::unlinkat(directory, kJob, 0) != 0 && errno != ENOENT)
    return errno_error("replace the link", kJob);
  if (::symlinkat(std::to_string(job).c_str(), directory, kJob) != 0)
    return errno_error("make the link", kJob);
  return {};
}

/// With the lock, or beside another task of the job.
Status settle_origin(int directory, const std::string& name, const MadeFrom& origin) {
  const auto text = link_text(directory, kMadeFrom);
  if (!text) return text.error();
  if (!*text) {
    if (::symlinkat(origin_text(origin).c_str(), directory, kMadeFrom) == 0) return {};
    return errno_error("make the link", kMadeFrom);
  }
  const auto found = parse_origin(**text);
  if (!found) return strange(name, found.error().text);
  if (found->identity == origin.identity) return {};
  return Error{ErrorKind::denied,
               fmt::format("the container {} was made from {} as it was then, which is another "
                           "image now, and what was written to it fits no other; remove it with "
                           "bellows container remove {}, or use another name",
                           name, one_line(found->image, 256), name)};
}

/// Who only looks at a container has the lock for a moment.
bool lock_soon(int lock) {
  constexpr int kMostLooks = 20;
  for (int tries = 0; tries < kMostLooks; ++tries) {
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return false;
    ::poll(nullptr, 0, 5);
  }
  errno = EWOULDBLOCK;
  return false;
}

/// One try. Without a directory in the answer: it was removed meanwhile.
Result<Use> try_use(int users, const std::string& name, std::uint32_t job) {
  Use use;
  if (::mkdirat(users, name.c_str(), 0700) == 0)
    use.made = true;
  else if (errno != EEXIST)
    return errno_error("make the container's directory", name);
  auto directory = open_child(users, name);
  if (!directory) {
    if (directory.error().kind == ErrorKind::not_found) return Use{};
    return strange(name, directory.error().text);
  }
  if (!is_own(directory->get(), S_IFDIR)) return strange(name, "its directory is not the user's");
  auto lock = open_lock(directory->get(), name);
  if (!lock) return lock.error();
  const bool locked = lock_soon(lock->get());
  if (!locked && errno != EWOULDBLOCK) return errno_error("lock the container", name);
  if (!is_there(users, name, lock->get())) return Use{};
  if (!locked) {
    const auto holder = job_in(directory->get());
    if (holder != job) return in_use(name, holder);
  }
  use.directory = *std::move(directory);
  if (locked) use.lock = *std::move(lock);
  return use;
}

Result<Fd> open_roots(const std::string& directory) {
  auto top = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!top) return top;
  const auto status = check_owner(top->get(), 0, directory);
  return status.ok() ? std::move(top) : Result<Fd>(status.error());
}

Result<Fd> open_users(int top, const std::string& directory, uid_t uid) {
  auto users = open_child(top, std::to_string(uid));
  if (!users) return users;
  struct stat info {};
  if (::fstat(users->get(), &info) != 0) return errno_error("look at", directory);
  if (info.st_uid == uid) return users;
  return Error{ErrorKind::denied, fmt::format("{}/{} belongs to user {}; tell the administrator",
                                              directory, uid, info.st_uid)};
}

}  // namespace

bool is_name(std::string_view name) {
  return !name.empty() && is_alphanumeric(name[0]) && name.find('/') == std::string_view::npos;
}

std::optional<std::uint64_t> job_in(int directory) {
  const auto text = link_text(directory, kJob);
  return text && *text ? parse_uint(**text) : std::nullopt;
}

Error in_use(const std::string& name, const std::optional<std::uint64_t>& job) {
  return {ErrorKind::busy,
          fmt::format("the container {} is in use by {} on this node, and two jobs cannot write to "
                      "it at a time; wait until that has ended, or use another name",
                      name, job ? fmt::format("job {}", *job) : "another job")};
}

std::string origin_text(const MadeFrom& origin) {
  return fmt::format("{} {} {}", kVersion, origin.identity, origin.image);
}

Result<MadeFrom> parse_origin(std::string_view text) {
  const Error bad = {ErrorKind::corrupt, "what it says of its image is not understood"};
  const auto first = text.find(' ');
  if (first == std::string_view::npos || text.substr(0, first) != kVersion) return bad;
  const auto second = text.find(' ', first + 1);
  if (second == std::string_view::npos) return bad;
  MadeFrom origin{std::string(text.substr(second + 1)),
                  std::string(text.substr(first + 1, second - first - 1))};
  if (!is_identity(origin.identity) || origin.image.empty() ||
      std::any_of(origin.image.begin(), origin.image.end(), is_control))
    return bad;
  return origin;
}

Result<Fd> find_users(const std::string& directory, uid_t uid) {
  const auto top = open_roots(directory);
  return top ? open_users(top->get(), directory, uid) : Result<Fd>(top.error());
}

Result<Fd> make_users(const std::string& directory, uid_t uid, gid_t gid) {
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error("make", directory);
  const auto top = open_roots(directory);
  if (!top) return top.error();
  auto users = open_users(top->get(), directory, uid);
  if (users || users.error().kind != ErrorKind::not_found) return users;
  // Under its own name nobody sees it before it is the user's: a job's tasks begin at once.
  const std::string fresh = fmt::format(".new-{}-{}", uid, ::getpid());
  (void)::unlinkat(top->get(), fresh.c_str(), AT_REMOVEDIR);
  if (::mkdirat(top->get(), fresh.c_str(), 0700) != 0)
    return errno_error("make", fmt::format("{}/{}", directory, fresh));
  if (::fchownat(top->get(), fresh.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error("give away", fmt::format("{}/{}", directory, fresh));
  if (::renameat2(top->get(), fresh.c_str(), top->get(), std::to_string(uid).c_str(),
                  RENAME_NOREPLACE) != 0) {
    const int why = errno;
    (void)::unlinkat(top->get(), fresh.c_str(), AT_REMOVEDIR);
    errno = why;
    if (why != EEXIST) return errno_error("make", fmt::format("{}/{}", directory, uid));
  }
  return open_users(top->get(), directory, uid);
}

Result<std::optional<MadeFrom>> origin_of(int users, const std::string& name) {
  const auto directory =
      is_name(name) ? open_child(users, name) : Error{ErrorKind::invalid, "no name of a container"};
  if (!directory) {
    if (directory.error().kind == ErrorKind::not_found) return std::optional<MadeFrom>();
    return strange(name, directory.error().text);
  }
  const auto text = link_text(directory->get(), kMadeFrom);
  if (!text) return strange(name, text.error().text);
  if (!*text) return std::optional<MadeFrom>();
  auto origin = parse_origin(**text);
  if (!origin) return strange(name, origin.error().text);
  return std::optional<MadeFrom>(*std::move(origin));
}

Result<Use> use(int users, const std::string& name, const MadeFrom& origin, std::uint32_t job) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    auto use = try_use(users, name, job);
    if (!use) return use;
    if (!use->directory) continue;
    auto status = settle_origin(use->directory.get(), name, origin);
    if (status.ok() && use->lock) status = note_job(use->directory.get(), job);
    if (!status.ok()) return status.error();
    if (use->lock) (void)::futimens(use->lock.get(), nullptr);
    return use;
  }
  return Error{ErrorKind::unavailable,
               fmt::format("the container {}: somebody keeps removing it", name)};
}

void forget(int users, const std::string& name, const Use& use) {
  if (!use.made) return;
  for (const char* file : {kMadeFrom, kJob, kLock}) ::unlinkat(use.directory.get(), file, 0);
  // Where anything was written, this is not empty, and stays.
  for (const char* directory : {"work/work", "work", "upper"})
    ::unlinkat(use.directory.get(), directory, AT_REMOVEDIR);
  ::unlinkat(users, name.c_str(), AT_REMOVEDIR);
}

}  // namespace bellows::lasting
