// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pool/shared/etcd_servers.h"
#include "pool/shared/field_lock.h"

namespace bellows::pool {

/// What fields hold, in MessagePack: what packed() of shared.h makes. Of a field that was never
/// written: nil.
using Packed = std::string;

/// Fields of one name in a pool, as python/bellows/pool/shared.py has them, and under the same
/// keys. Every change is a transaction that holds only if the field was not changed since it was
/// read, with an id of its own: it may be sent again, and the field's history says whether it was
/// done. For one thread at a time.
class Fields {
 public:
  static constexpr std::size_t kMostBytes = 1 << 20;
  /// Of a value: what to write instead, or nothing to leave it.
  using Change = std::function<std::optional<Packed>(const Packed&)>;

  /// `pool`: its directory. Each call takes at most `timeout`.
  Fields(std::string pool, std::string name, std::chrono::milliseconds timeout);

  FieldResult<Packed> get(const std::string& field);
  /// Whether `change`, which may be called several times, wrote something; with a lock only while
  /// that is held.
  FieldResult<bool> change(const std::string& field, const Change& change,
                           const FieldLock* lock = nullptr);
  /// Writes it whatever it was.
  FieldResult<bool> set(const std::string& field, const Packed& value,
                        const FieldLock* lock = nullptr);

 private:
  using Clock = std::chrono::steady_clock;
  struct Version {
    std::int64_t revision = 0;  // of its last change; 0: never written
    std::int64_t count = 0;     // of changes
    std::string id;
    Packed value;
  };

  std::string key(const std::string& field) const;
  FieldResult<Version> read(const std::string& field, Clock::time_point until,
                            std::int64_t revision = 0);
  FieldResult<bool> change_from(const std::string& field, Version now, const Change& change,
                                const FieldLock* lock, Clock::time_point until);
  FieldResult<std::pair<bool, Version>> swap(const std::string& field, const Version& base,
                                             const Packed& value, const FieldLock* lock,
                                             Clock::time_point until);
  FieldResult<Version> successor(const std::string& field, const Version& base, Version now,
                                 Clock::time_point until);
  static std::optional<Version> version_in(const std::string& pairs);

  const std::string name_;
  const std::chrono::milliseconds timeout_;
  EtcdServers servers_;
  std::map<std::string, Version> known_;
};

}  // namespace bellows::pool
