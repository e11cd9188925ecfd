// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "common/result.h"

namespace bellows {

/// The socket to bellows-modeld, in a process that it started.
inline constexpr int kDaemon = 0;

/// The main function of such a process, which errors call `name`: 0, or 1 after `report` has said
/// why `serve` failed or what it threw. A daemon that has gone ends no process by a signal.
int helper_main(const std::string& name, const std::function<Status()>& serve,
                const std::function<void(const Error&)>& report);

}  // namespace bellows
