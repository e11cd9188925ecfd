// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bellows::pool {

/// A folder of this node for sockets, in $TMPDIR or /tmp. It goes with its owner.
class SocketFolder {
 public:
  SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;
  ~SocketFolder();
  /// Empty: it could not be made, and errno says why.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The path of a program that bellows-pool starts: beside this one as built, else where it is
/// installed.
std::string helper_program(const std::string& name);

}  // namespace bellows::pool
