// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/result.h"

namespace bellows {

/// What a controller says about its policy. A value.
struct PolicyRecord {
  std::string host;
  std::string digest;      ///< empty: it has none in force
  std::int64_t since = 0;  ///< when it came into force: seconds since 1970

  bool operator==(const PolicyRecord&) const = default;
};

/// The controllers of one cluster, which share StateSaveLocation: each keeps a small file there,
/// `bellows.policy.HOST`, that says which policy it has in force, and looks at the others'. Each is
/// rewritten all the time, so that one whose controller is gone is recognised by its age, in the
/// time of the file system. For one thread, and one that may wait for a file.
class Peers {
 public:
  struct Times {
    std::chrono::milliseconds period = std::chrono::seconds(15);  ///< between two looks
    /// A file that both share comes into force at both within this time, also over NFS.
    std::chrono::milliseconds grace = std::chrono::seconds(90);
    std::chrono::milliseconds stale =
        std::chrono::minutes(5);  ///< an older record is that of a dead controller
  };

  Peers(std::string directory, std::string host, Times times);

  /// Writes what this controller has in force, if that is new or time. Then finds one that has had
  /// another policy than this for longer than the grace; null: none has.
  Result<std::shared_ptr<const PolicyRecord>> meet(const std::string& digest, std::int64_t since);
  const std::string& host() const { return self_.host; }

 private:
  std::string own_path() const;
  using Clock = std::chrono::steady_clock;
  Result<std::shared_ptr<const PolicyRecord>> find_other() const;

  const std::string directory_;
  const Times times_;
  PolicyRecord self_;
  Clock::time_point due_;
  Clock::time_point differ_since_;  ///< for as long as `other_` differs
  std::shared_ptr<const PolicyRecord> other_;
};

}  // namespace bellows
