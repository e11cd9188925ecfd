// SPDX-License-Identifier: Apache-2.0
#include "image/cache/leases.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/directory.h"

namespace bellows::image {
namespace {

/// Of the open file, not the process, so that a child has it too; and it can be looked at without
/// being taken.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// What can't be told counts as locked.
bool is_locked(int directory, const char* name) {
  const Fd fd(::openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return errno != ENOENT;
  struct flock lock = whole_file();
  return ::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

template <typename Visit>
void for_each(const std::string& directory, const Visit& visit) {
  const auto entries =
      read_directory(Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  const int at = entries ? ::dirfd(entries.get()) : -1;
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr)
    if (entry->d_name[0] != '.') visit(at, entry->d_name, is_locked(at, entry->d_name));
}

}  // namespace

Result<Fd> take_lease(const std::string& directory, const std::string& name) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error("make the directory", directory);
  const std::string path = directory + '/' + name;
  auto fd = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!fd) return fd;
  struct flock lock = whole_file();
  if (::fcntl(fd->get(), F_OFD_SETLK, &lock) == 0) return fd;
  if (errno == EAGAIN || errno == EACCES)
    return Error{ErrorKind::busy, fmt::format("{} is locked already", path)};
  return errno_error("lock", path);
}

std::vector<std::string> leases_in(const std::string& directory) {
  std::vector<std::string> names;
  for_each(directory, [&names](int, const char* name, bool locked) {
    if (locked) names.emplace_back(name);
  });
  std::sort(names.begin(), names.end());
  return names;
}

void remove_unlocked(const std::string& directory) {
  for_each(directory, [](int at, const char* name, bool locked) {
    if (!locked) ::unlinkat(at, name, 0);
  });
}

}  // namespace bellows::image
