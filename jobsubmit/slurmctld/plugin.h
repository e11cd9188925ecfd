// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "jobsubmit/admission/admission.h"
#include "jobsubmit/slurmctld/site_rules.h"
#include "jobsubmit/slurmctld/watcher.h"
#include "slurm/compat.h"
#include "slurm/conf_path.h"

namespace bellows {

/// job_submit_bellows between its entry points and admission: which calls concern Bellows, who may
/// do what, and how a refusal reaches the user. One object from init to fini.
class AdmissionPlugin {
 public:
  explicit AdmissionPlugin(const std::string& policy_path = default_policy_path());

  /// SLURM_SUCCESS or a Slurm error number; *err_msg (Slurm's heap) then holds the sentence. After
  /// success it may hold a note. `err_msg` may be null where this Slurm has none.
  int submit(job_desc_msg_t& desc, char** err_msg) const;
  int modify(job_desc_msg_t& desc, job_record_t* job, uid_t uid, char** err_msg) const;

 private:
  struct Judged {
    bool bellows = false;  ///< whether the job wants Bellows, so that a decision is to be applied
    Decision decision;
  };
  Judged judge(const PolicyWatcher::State& state, job_desc_msg_t& desc) const;
  UpdateDecision judge_update(const PolicyWatcher::State& state, const job_desc_msg_t& record,
                              const std::optional<std::string>& line, job_desc_msg_t& desc) const;

  PolicyWatcher watcher_;
  SiteRules rules_;
};

}  // namespace bellows
