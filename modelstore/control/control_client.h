// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/wire/control_wire.h"

namespace bellows {

/// A connection to bellows-modeld's own socket, for root and the daemon's user. All that is asked
/// through it has one deadline together. A resource.
///
/// Errors: unavailable when the daemon is not there, hangs or ended; else as the daemon says.
class ControlClient {
 public:
  using Clock = std::chrono::steady_clock;

  /// Waits for so long for a daemon that is just being restarted, whose socket is there already.
  static Result<ControlClient> connect(
      const std::string& path, Clock::time_point deadline,
      std::chrono::milliseconds restart = std::chrono::milliseconds(300));

  /// Has the daemon take clients of this user from `listener`, for this tenant, under this name.
  Status serve(const std::string& job, const std::string& tenant, uid_t uid, int listener);
  /// Ends what serve began. not_found: nothing of this name is served.
  Status end(const std::string& job);
  /// Begins to load what the tenant sees by this name, unless it is in memory. not_found: it sees
  /// no such model.
  Status prefetch(const std::string& tenant, const std::string& model);

 private:
  ControlClient(Fd socket, Clock::time_point deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}
  Status ask(const modelwire::ControlRequest& request, int passed = -1);

  Fd socket_;
  Clock::time_point deadline_;
};

}  // namespace bellows
