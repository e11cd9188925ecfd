// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/file_read.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace bellows {

Error unreadable(const Error& error, const std::string& path) {
  struct stat s;
  if (error.kind == ErrorKind::invalid) return Error{ErrorKind::corrupt, error.text};
  if (lstat(path.c_str(), &s) < 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return missing ? Error{ErrorKind::corrupt, path + " is missing"} : error;
  }
  return S_ISREG(s.st_mode) ? error : Error{ErrorKind::corrupt, path + " is not a plain file"};
}

Result<Fd> open_shard(const std::string& path, std::uint64_t size) {
  auto fd = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd) return unreadable(fd.error(), path);
  struct stat s;
  if (fstat(fd->get(), &s) < 0) return errno_error("look at", path);
  if (!S_ISREG(s.st_mode)) return Error{ErrorKind::corrupt, path + " is not a plain file"};
  const auto found = static_cast<std::uint64_t>(s.st_size);
  if (found == size) return fd;
  return Error{ErrorKind::corrupt,
               fmt::format("{} is {}: it has {} bytes, {} are expected", path,
                           found < size ? "truncated" : "too long", found, size)};
}

bool pages_are_cached(void* begin, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<std::uintptr_t>(begin) % page != 0) return false;
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (mincore(begin, bytes, pages.data()) < 0) return false;
  return std::all_of(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

bool is_cached(int fd, std::uint64_t size) {
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  const bool cached = pages_are_cached(map, size);
  munmap(map, size);
  return cached;
}

Status read_at(int fd, unsigned char* to, std::uint64_t bytes, std::uint64_t offset,
               const std::string& path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read", path);
    if (got == 0) return Error{ErrorKind::corrupt, path + " is truncated"};
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return {};
}

}  // namespace bellows
