// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "common/result.h"
#include "pool/wire/pool.grpc.pb.h"

namespace bellows::pool {

/// How long a command waits for a keeper.
inline constexpr std::chrono::seconds kKeeperWait{5};

/// Asks the keeper of the pool in `dir`. unavailable: none answers; denied: this user is not in the
/// pool, or it refuses.
Result<Pool> ask_pool(const std::string& dir, std::chrono::milliseconds limit = kKeeperWait);
/// Orders a change. invalid: there is no such member or size.
Result<Pool> change_pool(const std::string& dir, const ChangeRequest& change,
                         std::chrono::milliseconds limit = kKeeperWait);

}  // namespace bellows::pool
