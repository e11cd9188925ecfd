// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>

#include "common/directory.h"
#include "common/fd.h"

namespace bellows {

/// Ends connections to a port of this process that last too long. The limits of a server's library
/// are for each read, so that a client that sends a byte now and then would hold a thread for
/// hours.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  Connections(std::uint16_t port, Clock::duration longest);

  /// To be called several times in `longest`. How many it ended.
  int end_old(Clock::time_point now);

 private:
  std::uint16_t port_;
  Clock::duration longest_;
  // Opened at the begin: who opens many connections leaves no descriptor for what ends them.
  Directory descriptors_;
  Fd nothing_;
  Fd copy_;
  std::map<ino_t, Clock::time_point> seen_;  ///< by the socket's inode
};

}  // namespace bellows
