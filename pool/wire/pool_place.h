// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace bellows::pool {

/// Where the keeper of a pool listens. A value.
struct KeeperPlace {
  std::string host;
  std::uint16_t port = 0;
  std::uint32_t job = 0;   ///< 0: it is in none
  std::uint64_t term = 0;  ///< of two keepers the one with the higher has the pool

  std::string address() const;
  bool operator==(const KeeperPlace&) const = default;
};

/// The directory of all of a user's pools: $BELLOWS_POOLS, or ~/.bellows/pools. invalid: there is
/// neither a variable nor a home.
Result<std::string> pools_dir();
/// The directory of one. invalid: no pool can have such a name; not_found: there is none.
Result<std::string> find_pool(const std::string& name);
/// The names of all of a user's pools, in their order.
Result<std::vector<std::string>> pool_names();

/// Its policy, a script or a YAML file, in the pool's directory. It need not be there.
std::string policy_file(const std::string& dir);

/// not_found: no keeper has started yet; corrupt: the file is not what a keeper writes.
Result<KeeperPlace> read_keeper(const std::string& dir);
Status write_keeper(const std::string& dir, const KeeperPlace& place);

}  // namespace bellows::pool
