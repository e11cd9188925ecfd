// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/result.h"

namespace bellows::ps {

/// Where bellows-ps listens. The destructor removes its socket, and never another's.
class SocketPlace {
 public:
  /// `path`: empty: in a new directory of TMPDIR, else of /tmp, that is this user's alone. busy:
  /// another bellows-ps has it. invalid: something other than a socket is there.
  static Result<SocketPlace> make(const std::string& path);
  SocketPlace(SocketPlace&& other) noexcept;
  SocketPlace& operator=(SocketPlace&&) = delete;
  ~SocketPlace();

  const std::string& path() const { return path_; }
  /// Where the socket is until it listens.
  static std::string unready(const std::string& path) { return path + ".new"; }
  /// Removes a socket, unless another one is in its place by now.
  static void remove(const std::string& path, ino_t inode);
  /// The socket that was made there.
  void note(ino_t inode) { inode_ = inode; }
  /// The directory that was made for it; empty: none was.
  const std::string& directory() const { return directory_; }

 private:
  SocketPlace(std::string path, std::string directory);
  std::string path_;
  std::string directory_;
  std::optional<ino_t> inode_;
};

}  // namespace bellows::ps
