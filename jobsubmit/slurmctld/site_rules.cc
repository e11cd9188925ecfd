// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/site_rules.h"

#include <string_view>

#include "common/text.h"

namespace bellows {
namespace {

/// Evaluates the outcome of a call, and discards what was written if the job must not get it.
std::optional<RulesRefusal> settle(const HookOutcome& outcome, const LuaSettings& settings,
                                   JobFields& written, std::uint32_t uid) {
  for (const std::string& line : outcome.log)
    slurm_info("job_submit/bellows: lua, for a job of uid %u: %s", uid, line.c_str());
  if (outcome.failure) {
    for (std::string_view line : split(*outcome.failure, '\n'))
      slurm_error("job_submit/bellows: lua failed for a job of uid %u: %.*s", uid,
                  static_cast<int>(line.size()), line.data());
    written.drop();
    if (settings.on_error == Fallback::pass) return std::nullopt;
    return RulesRefusal{
        Refusal::unavailable,
        "this site's rules could not be applied; try again later, and if the problem persists, "
        "tell the administrator, who will find the reason in slurmctld's log"};
  }
  if (!outcome.refused) return std::nullopt;
  written.drop();
  return RulesRefusal{Refusal::policy, outcome.message};
}

}  // namespace

std::optional<RulesRefusal> SiteRules::submit(const PolicyWatcher::State& state, JobFields& job,
                                              const Tenant* tenant, std::uint32_t uid) const {
  if (!state.hook || !state.hook->has_submit()) return std::nullopt;
  const std::lock_guard lock(turn_);
  return settle(state.hook->submit(job, tenant, local_now()), state.policy->lua, job, uid);
}

std::optional<RulesRefusal> SiteRules::modify(const PolicyWatcher::State& state, JobFields& job,
                                              JobFields& change, const Tenant* tenant,
                                              std::uint32_t uid) const {
  if (!state.hook || !state.hook->has_modify()) return std::nullopt;
  const std::lock_guard lock(turn_);
  return settle(state.hook->modify(job, change, tenant, local_now()), state.policy->lua, change,
                uid);
}

}  // namespace bellows
