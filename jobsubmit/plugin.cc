// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/plugin.h"

#include <cerrno>
#include <cstdlib>

#include "common/text.h"
#include "jobsubmit/job_desc.h"

namespace bellows {
namespace {

constexpr std::chrono::milliseconds kPeriod{1000};

/// Some commands show only the text of the error number: the most telling one there is.
int error_number(Refusal why) {
  switch (why) {
    case Refusal::policy:
      return ESLURM_ACCOUNTING_POLICY;
    case Refusal::account:
      return ESLURM_INVALID_ACCOUNT;
    case Refusal::gpus:
      return ESLURM_INVALID_GRES;
    case Refusal::option:
      return EINVAL;
    case Refusal::unavailable:
      break;
  }
  return ESLURM_NOT_SUPPORTED;
}

void say(char** err_msg, const std::string& message) {
  if (err_msg && !message.empty()) set_text(*err_msg, "bellows: " + message);
}

void report(const std::string& path, const std::string& problem) {
  if (problem.empty())
    slurm_info("job_submit/bellows: policy read from %s", path.c_str());
  else
    slurm_error("job_submit/bellows: %s; the policy before it, if any, stays in force",
                problem.c_str());
}

}  // namespace

std::string policy_path() {
  if (const char* path = std::getenv("BELLOWS_CONF"); path && *path) return path;
  if (!slurm_get_extra_conf_path) return "/etc/slurm/bellows.yaml";
  char* path = slurm_get_extra_conf_path("bellows.yaml");
  std::string copy = path ? path : "";
  slurm_xfree(reinterpret_cast<void**>(&path));
  return copy;
}

AdmissionPlugin::AdmissionPlugin(const std::string& policy_path)
    : watcher_(policy_path, kPeriod, report) {}

int AdmissionPlugin::submit(job_desc_msg_t& desc, char** err_msg) const {
  if (strip_forged(desc))
    slurm_info(
        "job_submit/bellows: removed forged or doubled Bellows variables from a job of uid %u",
        desc.user_id);
  Request request = read_request(desc);
  if (!request.wants_bellows()) return SLURM_SUCCESS;
  request.account = settle_account(desc);
  const PolicyWatcher::State state = watcher_.current();
  const Decision decision = decide(state.policy.get(), state.problem, request);
  say(err_msg, decision.message);
  if (decision.refused) {
    slurm_info("job_submit/bellows: refused a job of uid %u: %s", desc.user_id,
               decision.message.c_str());
    return error_number(*decision.refused);
  }
  apply_decision(desc, decision);
  return SLURM_SUCCESS;
}

int AdmissionPlugin::modify(job_desc_msg_t& desc, job_record_t* job, uid_t uid,
                            char** err_msg) const {
  if (!touches_contract(desc) || !copy_job_record_to_job_desc) return SLURM_SUCCESS;
  const JobDescPtr record(copy_job_record_to_job_desc(job));
  if (!record) return SLURM_SUCCESS;
  const auto line = contract_line(*record);
  if (!line) return SLURM_SUCCESS;
  const std::uint32_t id = BELLOWS_JOB_DESC_ID(record);
  if (uid == 0 || (validate_operator && validate_operator(uid))) {
    slurm_info(
        "job_submit/bellows: JobId=%u changed by uid %u, who is not bound by its contract %s", id,
        uid, line->c_str());
    return SLURM_SUCCESS;
  }
  auto contract = Contract::parse(*line);
  if (!contract) {
    slurm_error("job_submit/bellows: JobId=%u: %s", id, contract.error().text.c_str());
    return ESLURM_NOT_SUPPORTED;
  }
  if (desc.account) settle_account(desc);
  const PolicyWatcher::State state = watcher_.current();
  const UpdateDecision decision = decide_update(
      state.policy.get(), read_admitted(*record, *std::move(contract)), read_update(desc));
  if (!decision.refused) {
    apply_changes(desc, decision.changes);
    return SLURM_SUCCESS;
  }
  slurm_info("job_submit/bellows: refused an update of JobId=%u by uid %u: %s", id, uid,
             decision.message.c_str());
  say(err_msg, decision.message);
  return error_number(*decision.refused);
}

}  // namespace bellows
