// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/socket_place.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/fd.h"
#include "common/plain/packet.h"

namespace bellows::ps {

Result<SocketPlace> SocketPlace::make(const std::string& path) {
  if (!path.empty()) {
    plain::Handle other;
    if (plain::connect_to(path.c_str(), &other, 1) == 0)
      return Error{ErrorKind::busy,
                   path + ": another bellows-ps has this socket; give another --socket"};
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
    : path_(std::exchange(other.path_, "")), directory_(std::exchange(other.directory_, "")) {}

SocketPlace::~SocketPlace() {
  if (!path_.empty()) unlink(path_.c_str());
  if (!directory_.empty()) rmdir(directory_.c_str());
}

}  // namespace bellows::ps
