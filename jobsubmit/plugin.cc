// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/plugin.h"

#include <algorithm>
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
    slurm_error("job_submit/bellows: %s", problem.c_str());
}

bool needs_parents(const Policy* policy) {
  return policy && std::any_of(policy->tenants.begin(), policy->tenants.end(),
                               [](const Tenant& tenant) { return tenant.children; });
}

int refuse_job(const job_desc_msg_t& desc, Refusal why, const std::string& message,
               char** err_msg) {
  say(err_msg, message);
  slurm_info("job_submit/bellows: refused a job of uid %u: %s", desc.user_id, message.c_str());
  return error_number(why);
}

/// Fills in who the job's owner is, as far as the policy asks.
void identify(Origin& origin, const PolicyWatcher::State& state, const job_desc_msg_t& owner) {
  origin.person_known = state.people != nullptr;
  if (state.people) {
    People::Person person = state.people->find(owner.user_id, owner.group_id);
    origin.user = std::move(person.user);
    origin.groups = std::move(person.groups);
  }
  if (needs_parents(state.policy.get())) origin.parents = parents_of(origin.account);
}

/// A user's change to a job that has a contract.
UpdateDecision decide_contracted(const PolicyWatcher::State& state, const job_desc_msg_t& record,
                                 const std::string& line, job_desc_msg_t& desc) {
  auto contract = Contract::parse(line);
  if (!contract) return {Refusal::unavailable, contract.error().text, {}};
  if (desc.account) settle_account(desc);
  Admitted admitted = read_admitted(record, *std::move(contract));
  admitted.origin.default_partition = default_partition();
  identify(admitted.origin, state, record);
  Update update = read_update(desc);
  if (update.account && needs_parents(state.policy.get()))
    update.parents = parents_of(*update.account);
  return decide_update(state.policy.get(), admitted, update);
}

/// And to one that has none: it may not be moved where it could not have been submitted.
UpdateDecision decide_plain(const PolicyWatcher::State& state, const job_desc_msg_t& desc) {
  if (!state.policy || !desc.partition) return {};
  Origin origin;
  origin.partition = desc.partition;
  const auto why = refuse_plain(*state.policy, origin);
  return why ? UpdateDecision{Refusal::policy, *why, {}} : UpdateDecision();
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
  const PolicyWatcher::State state = watcher_.current();
  if (state.policy && !state.policy->enabled) return SLURM_SUCCESS;
  Request request = read_request(desc);
  request.default_partition = default_partition();
  if (!request.wants_bellows()) {
    const auto why = state.policy ? refuse_plain(*state.policy, request) : std::nullopt;
    return why ? refuse_job(desc, Refusal::policy, *why, err_msg) : SLURM_SUCCESS;
  }
  request.account = settle_account(desc);
  identify(request, state, desc);
  const Decision decision = decide(state.policy.get(), state.problem, request);
  if (decision.refused) return refuse_job(desc, *decision.refused, decision.message, err_msg);
  say(err_msg, decision.message);
  apply_decision(desc, decision);
  return SLURM_SUCCESS;
}

int AdmissionPlugin::modify(job_desc_msg_t& desc, job_record_t* job, uid_t uid,
                            char** err_msg) const {
  if (!touches_contract(desc) || !copy_job_record_to_job_desc) return SLURM_SUCCESS;
  const PolicyWatcher::State state = watcher_.current();
  if (state.policy && !state.policy->enabled) return SLURM_SUCCESS;
  const JobDescPtr record(copy_job_record_to_job_desc(job));
  if (!record) return SLURM_SUCCESS;
  const auto line = contract_line(*record);
  const std::uint32_t id = BELLOWS_JOB_DESC_ID(record);
  if (uid == 0 || (validate_operator && validate_operator(uid))) {
    if (line)
      slurm_info(
          "job_submit/bellows: JobId=%u changed by uid %u, who is not bound by its contract %s", id,
          uid, line->c_str());
    return SLURM_SUCCESS;
  }
  const UpdateDecision decision =
      line ? decide_contracted(state, *record, *line, desc) : decide_plain(state, desc);
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
