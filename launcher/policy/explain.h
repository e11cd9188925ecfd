// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "jobsubmit/admission/admission.h"
#include "jobsubmit/admission/trace.h"
#include "launcher/policy/rehearsal.h"

namespace bellows {

/// What becomes of a job, and by which rules.
struct Explanation {
  enum class Outcome {
    plain,     ///< passes as it is, without a contract
    admitted,  ///< gets the contract
    refused,
  };

  Outcome outcome = Outcome::plain;
  Trace trace;
  Decision decision;  ///< of a plain job, only the refusal
};

/// Does with a request of sbatch what its SPANK plugin and slurmctld's job_submit/bellows do.
/// `hook`, unless null, is the policy's script: it is run, with the options that only it sees.
Explanation explain(const Policy& policy, const Request& request, LuaHook* hook = nullptr,
                    const OptionsForRules& more = {});

/// What an admitted job's fields become, as options of sbatch where there are such.
std::vector<std::string> changed_options(const Decision& decision);

}  // namespace bellows
