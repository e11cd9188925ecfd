// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "jobsubmit/admission/admission.h"
#include "jobsubmit/lua/hook.h"

namespace bellows {

/// Options of sbatch that a site's rules can see and admission itself does not look at: by their
/// name, such as "comment".
using OptionsForRules = std::map<std::string, std::string>;

/// The script that a policy names, checked for likely mistakes, with the fields that it sees in
/// slurmctld; only for a policy that names one.
Result<LuaHook> load_rules(const Policy& policy);

/// What a submit hook has said and done. Of what it wrote, `request` has what admission looks at,
/// unless it refused or failed.
struct Rehearsal {
  HookOutcome outcome;
  std::vector<std::string> written;
};
Rehearsal rehearse(LuaHook& hook, const Policy& policy, Request& request,
                   const OptionsForRules& more, const Decision& decision);

/// What becomes wrong when the hooks are asked about sample jobs, and updates of these: for each
/// tenant of the policy with each framework that it may use and with none, once with all fields set
/// and once with as few as can be.
struct Findings {
  std::size_t calls = 0;
  std::vector<std::string> wrong;  ///< "FILE:LINE: what (for which job)", each once
};
Findings rehearse_samples(LuaHook& hook, const Policy& policy);

}  // namespace bellows
