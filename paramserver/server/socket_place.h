// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/result.h"

namespace bellows::ps {

/// Where bellows-ps listens. The destructor removes it.
class SocketPlace {
 public:
  /// `path`: empty: in a new directory of TMPDIR, else of /tmp, that is this user's alone.
  static Result<SocketPlace> make(const std::string& path);
  SocketPlace(SocketPlace&& other) noexcept;
  SocketPlace& operator=(SocketPlace&&) = delete;
  ~SocketPlace();

  const std::string& path() const { return path_; }
  /// The directory that was made for it; empty: none was.
  const std::string& directory() const { return directory_; }

 private:
  SocketPlace(std::string path, std::string directory);
  std::string path_;
  std::string directory_;
};

}  // namespace bellows::ps
