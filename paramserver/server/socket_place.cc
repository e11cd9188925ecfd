// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/socket_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "common/fd.h"
#include "common/plain/packet.h"

namespace bellows::ps {
namespace {

bool is_something_else(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode);
}

/// A socket that a bellows-ps has left behind may be replaced, and nothing else.
Status check_free(const std::string& path) {
  for (const std::string& name : {path, SocketPlace::unready(path)})
    if (is_something_else(name))
      return Error{ErrorKind::invalid, name +
                                           ": this is no socket, and it would be replaced; give "
                                           "another --socket"};
  plain::Handle other;
  const int error = plain::connect_to(path.c_str(), &other, 1);
  // Who makes the socket says of a path that it is too long.
  if (error == ENOENT || error == ECONNREFUSED || error == ENAMETOOLONG) return {};
  if (error == 0 || error == ETIMEDOUT)
    return Error{ErrorKind::busy,
                 path + ": another bellows-ps has this socket; give another --socket"};
  errno = error;
  return errno_error("see whether another bellows-ps has", path);
}

}  // namespace

void SocketPlace::remove(const std::string& path, ino_t inode) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0 && info.st_ino == inode) unlink(path.c_str());
}

Result<SocketPlace> SocketPlace::make(const std::string& path) {
  if (!path.empty()) {
    if (auto is_free = check_free(path); !is_free) return is_free.error();
    return SocketPlace(path, "");
  }
  const char* const base = std::getenv("TMPDIR");
  std::string directory = std::string(base && *base ? base : "/tmp") + "/bellows-ps-XXXXXX";
  if (!mkdtemp(directory.data())) return errno_error("make the directory", directory);
  return SocketPlace(directory + "/socket", directory);
}

SocketPlace::SocketPlace(std::string path, std::string directory)
    : path_(std::move(path)), directory_(std::move(directory)) {}

SocketPlace::SocketPlace(SocketPlace&& other) noexcept
    : path_(std::exchange(other.path_, "")),
      directory_(std::exchange(other.directory_, "")),
      inode_(other.inode_) {}

SocketPlace::~SocketPlace() {
  if (inode_) remove(path_, *inode_);
  if (!directory_.empty()) rmdir(directory_.c_str());
}

}  // namespace bellows::ps
