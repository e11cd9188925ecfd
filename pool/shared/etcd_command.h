// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pool/shared/seats.h"

namespace bellows::pool {

/// etcd for a seat. `joins`: as a new member of servers that have a leader.
std::vector<std::string> etcd_command(const SeatFiles& files, const SeatPlan& plan, unsigned index,
                                      const SeatAddress& address, bool joins);

/// `etcdctl snapshot save PATH`, at this machine's server.
std::vector<std::string> snapshot_command(const SeatFiles& files, const SeatAddress& address,
                                          const std::string& path);

/// `etcdctl snapshot restore PATH` into the directory of a seat, which must not be there.
std::vector<std::string> restore_command(const SeatFiles& files, const SeatPlan& plan,
                                         unsigned index, const std::string& path);

}  // namespace bellows::pool
