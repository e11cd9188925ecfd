// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/pool_option.h"
#include "common/result.h"
#include "elastic/wire/message.h"
#include "slurm/job.h"

namespace bellows {

/// What an elastic pool asks for: a service, here, since a pool is of equal GPUs. Its name and
/// limits are those that admission wrote; only the wish is its keeper's word. A value.
struct ServiceClaim {
  std::uint32_t keeper = 0;  ///< its job
  uid_t uid = 0;
  PoolOption pool{};
  std::uint32_t wanted = 0;           ///< members, within its limits
  std::set<std::uint32_t> leaving{};  ///< jobs of members
};

/// The name of the pool of which the job is a member; nothing of another job.
std::optional<std::string> pool_of_member(const SlurmJob& job);

/// The services whose keepers speak to bellowsd. Any number of threads may use it.
class ServiceBook {
 public:
  using Clock = std::chrono::steady_clock;
  /// A keeper that says nothing for so long has its members planned as anybody's jobs.
  static constexpr std::chrono::seconds kSilent{15};

  /// Takes over which keepers run; forgets the others.
  void update(const std::vector<SlurmJob>& jobs);
  /// not_found: no such keeper runs; denied: it is another user's.
  Result<ServiceReply> take(const ServiceReport& report, uid_t uid, Clock::time_point now);
  /// Of those that are not silent.
  std::vector<ServiceClaim> claims(Clock::time_point now) const;
  /// What is answered from now on.
  void allow(std::uint32_t keeper, std::uint32_t members);

 private:
  struct Notes {
    ServiceClaim claim;
    std::optional<Clock::time_point> heard;
    std::optional<std::uint32_t> members;
  };

  mutable std::mutex mutex_;
  std::map<std::uint32_t, Notes> notes_;  ///< by keeper
};

}  // namespace bellows
