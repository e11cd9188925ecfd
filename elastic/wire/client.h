// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "common/controller_address.h"
#include "elastic/wire/envelope.h"

namespace bellows {

/// What bellowsd said, and which of its addresses it was, counted from 0.
struct ControllerAnswer {
  std::string body;
  std::size_t host = 0;
};

/// Asks bellowsd over HTTP: first the first of its addresses, and then the others until one
/// answers that is not standing by. Blocks for `limit` with each at most.
/// unavailable: none answers; denied: what answers is not bellowsd, or it refuses the call.
Result<ControllerAnswer> ask_controller(const ControllerAddress& address, uid_t slurm_user,
                                        const Munge& munge, Call call, std::string_view body,
                                        std::chrono::seconds limit);

}  // namespace bellows
