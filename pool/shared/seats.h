// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::pool {

/// Who the servers of a pool's etcd are, chosen once. To each other they are ports of 127.0.0.1,
/// behind which each has a relay to where the others run now: etcd keeps addresses with its data,
/// and so a server that comes back on another node, or all at once, would not be found. A value.
struct SeatPlan {
  std::string token;                 ///< of this etcd among all; hexadecimal
  std::vector<std::uint16_t> ports;  ///< by seat
};

/// Where a server listens now. A value.
struct SeatAddress {
  std::string host;
  std::uint16_t peer = 0;
  std::uint16_t client = 0;
};

/// The files of a pool's etcd below POOL/shared.
class SeatFiles {
 public:
  explicit SeatFiles(std::string pool) : pool_(std::move(pool)) {}

  const std::string& pool() const { return pool_; }
  std::string dir() const { return pool_ + "/shared"; }
  std::string seat(unsigned index) const { return dir() + "/m" + std::to_string(index); }
  std::string data(unsigned index) const { return seat(index) + "/data"; }

  /// For so many servers (1 or 3, or any odd number up to 7). busy: there is a plan already.
  Status make(unsigned servers) const;
  Result<SeatPlan> plan() const;
  /// What a server wrote; not_found before the first.
  Result<SeatAddress> address(unsigned index) const;
  Status write_address(unsigned index, const SeatAddress& address) const;
  /// A seat that nobody on any node holds, held until the descriptor is closed. busy: there is
  /// none.
  Result<std::pair<unsigned, Fd>> claim(const SeatPlan& plan) const;
  bool has_data(unsigned index) const;
  /// Whether the servers have ever been one: from then on there may be data that must not be lost.
  bool is_born() const;
  Status be_born() const;
  /// Whether the servers begin with a copy, and no majority has done so yet.
  bool is_restoring() const;
  Status begin_restore() const;
  void end_restore() const;
  /// Names the servers that have an address to callers, in POOL/shared.json.
  Status publish(const SeatPlan& plan) const;

 private:
  std::string pool_;
};

}  // namespace bellows::pool
