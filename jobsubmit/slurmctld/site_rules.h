// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "jobsubmit/admission/admission.h"
#include "jobsubmit/lua/hook.h"
#include "jobsubmit/slurmctld/job_fields.h"
#include "jobsubmit/slurmctld/watcher.h"

namespace bellows {

/// Why a hook refuses; nothing: the job passes.
struct RulesRefusal {
  Refusal why;
  std::string message;  ///< for the user
};

/// Asks the hooks of the site's script, and tells slurmctld's log what they say and why they fail.
///
/// Newer releases of slurmctld call job_submit from several threads at once, and a LuaHook serves
/// one at a time: any number of threads may call, and they take turns.
class SiteRules {
 public:
  /// Without a hook of the kind every job passes. After a refusal or a failure nothing is written
  /// in `job` or `change`. `tenant` may be null; `uid`, the owner's, is for the log.
  std::optional<RulesRefusal> submit(const PolicyWatcher::State& state, JobFields& job,
                                     const Tenant* tenant, std::uint32_t uid) const;
  std::optional<RulesRefusal> modify(const PolicyWatcher::State& state, JobFields& job,
                                     JobFields& change, const Tenant* tenant,
                                     std::uint32_t uid) const;

 private:
  mutable std::mutex turn_;
};

}  // namespace bellows
