// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace bellows::pool {

/// What `bellows pool create` was given: pool.json in the pool's directory. A value.
struct PoolSettings {
  std::string name;
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  std::chrono::seconds burst_interval{60};  ///< from one change of size by thresholds to the next
  std::chrono::seconds drain{30};           ///< that a member has to end its calls
  std::uint16_t http_port = 0;  ///< at which the keeper's HAProxy takes requests; 0: there is none
  std::vector<std::string> keeper_options{};  ///< of sbatch
};

/// corrupt: the file is not what `bellows pool create` writes.
Result<PoolSettings> read_settings(const std::string& dir);
Status write_settings(const std::string& dir, const PoolSettings& settings);
/// What people have ordered since: orders.json, so that the next keeper knows of it too. A value.
struct PoolOrders {
  std::uint32_t size = 0;  ///< that it is to hold; 0: the policy decides
  bool ends = false;       ///< it is being deleted
};

/// Those of a pool that nobody has ordered anything of, where there is no such file.
Result<PoolOrders> read_orders(const std::string& dir);
Status write_orders(const std::string& dir, const PoolOrders& orders);

/// What is wrong with them, or nothing.
std::string settings_complaint(const PoolSettings& settings);

}  // namespace bellows::pool
