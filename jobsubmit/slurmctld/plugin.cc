// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/plugin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "common/text.h"
#include "jobsubmit/admission/tenant_choice.h"
#include "jobsubmit/slurmctld/bounds.h"
#include "jobsubmit/slurmctld/job_desc.h"
#include "jobsubmit/slurmctld/job_facts.h"
#include "jobsubmit/slurmctld/query.h"

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

/// Whether each node of a job knows for how long that is there: by Slurm's extern step. X11 implies
/// Contain.
bool nodes_know_jobs() {
  return !&slurm_conf || (slurm_conf.prolog_flags & PROLOG_FLAG_CONTAIN) != 0;
}

void report(const std::string& path, const std::string& problem) {
  if (problem.empty())
    slurm_info("job_submit/bellows: policy read from %s", path.c_str());
  else
    slurm_error("job_submit/bellows: %s", problem.c_str());
  if (!nodes_know_jobs())
    slurm_info(
        "job_submit/bellows: PrologFlags in slurm.conf has no Contain, so steps of jobs that are "
        "submitted without options of Bellows cannot have containers");
}

/// bellowsd keeps nodes for the jobs of a plan by reservations of such names.
constexpr std::string_view kOwnReservations = "bellows-";

bool names_own_reservation(const char* names) {
  if (!names) return false;
  for (std::string_view name : split(names, ','))
    if (name.starts_with(kOwnReservations)) return true;
  return false;
}

constexpr const char* kReservedName =
    "reservations whose names begin with \"bellows-\" are bellowsd's, which gives jobs into them "
    "itself; leave --reservation out";

/// Updates by bellowsd are held to the contract like the owner's.
bool is_controller(const PolicyWatcher::State& state, uid_t uid) {
  const auto* policy = state.policy.get();
  if (uid == 0 || !policy || !policy->controller) return false;
  if (const auto& known = policy->controller->address.uid) return *known == uid;
  return &slurm_conf && slurm_conf.slurm_user_id == uid;
}

int refuse_job(const job_desc_msg_t& desc, Refusal why, const std::string& message,
               char** err_msg) {
  say(err_msg, message);
  slurm_info("job_submit/bellows: refused a job of uid %u: %s", desc.user_id, message.c_str());
  return error_number(why);
}

int refuse_update(Refusal why, const std::string& message, std::uint32_t job, uid_t uid,
                  char** err_msg) {
  slurm_info("job_submit/bellows: refused an update of JobId=%u by uid %u: %s", job, uid,
             message.c_str());
  say(err_msg, message);
  return error_number(why);
}

/// With the number that Slurm itself gives for what is too long; job_modify of 22.05 shows no more.
int refuse_size(const std::string& message, const char* what, std::uint32_t uid, char** err_msg) {
  say(err_msg, message);
  slurm_info("job_submit/bellows: refused %s of uid %u: %s", what, uid, message.c_str());
  return ESLURM_PATHNAME_TOO_LONG;
}

/// Fills in who the job's owner is, as far as the policy asks.
void identify(Origin& origin, const PolicyWatcher::State& state, const job_desc_msg_t& owner) {
  origin.person_known = state.people != nullptr;
  if (state.people) {
    People::Person person = state.people->find(owner.user_id, owner.group_id);
    origin.user = std::move(person.user);
    origin.groups = std::move(person.groups);
  }
  if (state.policy && state.policy->has_children()) origin.parents = parents_of(origin.account);
}

/// `whole`: also what only the policy's tenants and hooks ask for.
Request request_of(const PolicyWatcher::State& state, const job_desc_msg_t& desc, bool whole) {
  Request request = read_request(desc);
  request.default_partition = default_partition();
  if (!whole && !request.wants_bellows()) return request;
  request.account = settled_account(desc);
  identify(request, state, desc);
  return request;
}

Decision decide_request(const PolicyWatcher::State& state, const Request& request) {
  if (request.wants_bellows()) return decide(state.policy.get(), state.problem, request);
  Decision decision;
  const auto why = state.policy ? refuse_plain(*state.policy, request) : std::nullopt;
  if (!why) return decision;
  decision.refused = Refusal::policy;
  decision.message = *why;
  return decision;
}

/// A plain job may have steps in containers where its tenant may, and where nodes keep its contract
/// until its end.
void admit_containers(const PolicyWatcher::State& state, job_desc_msg_t& desc) {
  if (!state.policy || !state.policy->has_images() || !nodes_know_jobs()) return;
  if (const auto contract = plain_contract(*state.policy, request_of(state, desc, true)))
    add_plain_contract(desc, *contract);
}

/// For a refusal of what a hook has made of a job, which the user did not ask for.
std::string changed_by_rules(const std::vector<std::string>& fields) {
  return fmt::format(" (this site's rules had changed: {})", fmt::join(fields, ", "));
}

Origin owner_of(const PolicyWatcher::State& state, const job_desc_msg_t& record) {
  Origin origin;
  origin.account = to_lower(record.account ? record.account : "");
  origin.partition = record.partition ? record.partition : "";
  origin.default_partition = default_partition();
  identify(origin, state, record);
  return origin;
}

/// A user's change to a job that has a contract, whole or for containers alone.
UpdateDecision decide_contracted(const PolicyWatcher::State& state, const job_desc_msg_t& record,
                                 const std::string& line, const job_desc_msg_t& desc) {
  auto contract = Contract::parse(line);
  if (!contract) return {Refusal::unavailable, contract.error().text, {}};
  Admitted admitted = read_admitted(record, *std::move(contract));
  admitted.origin = owner_of(state, record);
  Update update = read_update(desc);
  if (update.account && state.policy && state.policy->has_children())
    update.parents = parents_of(*update.account);
  return decide_update(state.policy.get(), admitted, update);
}

/// And to one that uses nothing of Bellows: it may not be moved where it could not have been
/// submitted, nor away from the tenant whose images its steps may use.
UpdateDecision decide_plain(const PolicyWatcher::State& state, const job_desc_msg_t& record,
                            const job_desc_msg_t& desc) {
  if (const auto line = plain_contract_line(record))
    if (auto decision = decide_contracted(state, record, *line, desc); decision.refused)
      return decision;
  if (!state.policy) return {};
  if (desc.reservation && moves(desc.reservation, has_partition_of_slurm(record)) &&
      !state.policy->plain_jobs_by_partition.empty())
    return {Refusal::policy, kMovedByReservations, {}};
  if (!desc.partition) return {};
  Origin origin;
  origin.partition = desc.partition;
  const auto why = refuse_plain(*state.policy, origin);
  return why ? UpdateDecision{Refusal::policy, *why, {}} : UpdateDecision();
}

/// `line` is the job's contract.
UpdateDecision decide_change(const PolicyWatcher::State& state, const job_desc_msg_t& record,
                             const std::optional<std::string>& line, const job_desc_msg_t& desc) {
  return line ? decide_contracted(state, record, *line, desc) : decide_plain(state, record, desc);
}

/// Whether there is a modify hook that sees something of the update.
bool concerns_hook(const PolicyWatcher::State& state, const job_desc_msg_t& desc) {
  return state.hook && state.hook->has_modify() &&
         JobFields(desc, {}, JobFields::Access::read).any();
}

/// Null: slurmctld has no second one beside it. Reads Slurm's configuration, so only from init.
std::unique_ptr<Peers> peers_of_slurmctld() {
  if (!&slurm_conf || slurm_conf.control_cnt < 2 || !slurm_conf.state_save_location) return nullptr;
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) return nullptr;
  return std::make_unique<Peers>(slurm_conf.state_save_location, host.data(), Peers::Times());
}

}  // namespace

AdmissionPlugin::AdmissionPlugin(const std::string& policy_path)
    : watcher_(policy_path, kPeriod, report, JobFields::table(), std::chrono::minutes(5),
               peers_of_slurmctld()) {}

int AdmissionPlugin::submit(job_desc_msg_t& desc, char** err_msg) const {
  if (const auto why = over_bounds(desc)) return refuse_size(*why, "a job", desc.user_id, err_msg);
  drop_zero_divisor(desc);
  drop_partition_flag(desc);
  if (err_msg && asks_status(desc.spank_job_env, desc.spank_job_env_size)) {
    set_text(*err_msg, answer_status(watcher_.current()));
    return ESLURM_NOT_SUPPORTED;
  }
  if (strip_forged(desc))
    slurm_info(
        "job_submit/bellows: removed forged or doubled Bellows variables from a job of uid %u",
        desc.user_id);
  const PolicyWatcher::State state = watcher_.current();
  if (state.policy && !state.policy->enabled) return SLURM_SUCCESS;
  if (names_own_reservation(desc.reservation))
    return refuse_job(desc, Refusal::policy, kReservedName, err_msg);
  const Judged judged = judge(state, desc);
  const Decision& decision = judged.decision;
  if (decision.refused) return refuse_job(desc, *decision.refused, decision.message, err_msg);
  if (!judged.bellows) {
    admit_containers(state, desc);
    return SLURM_SUCCESS;
  }
  say(err_msg, decision.message);
  settle_account(desc);
  apply_decision(desc, decision);
  return SLURM_SUCCESS;
}

/// A hook sees only what the policy admits, and what it changes in a job is checked against the
/// policy once more. A job that uses no options of Bellows is checked only then.
AdmissionPlugin::Judged AdmissionPlugin::judge(const PolicyWatcher::State& state,
                                               job_desc_msg_t& desc) const {
  const bool asks = state.hook && state.hook->has_submit();
  const Request request = request_of(state, desc, asks);
  Judged judged{request.wants_bellows(), {}};
  if (judged.bellows || !asks) judged.decision = decide_request(state, request);
  if (!asks || judged.decision.refused) return judged;
  const Tenant* tenant = judged.bellows ? state.policy->find_tenant(judged.decision.contract.tenant)
                                        : choose_tenant(*state.policy, request).tenant;
  JobFields job(desc, facts_of_submission(desc, request, judged.decision),
                JobFields::Access::write);
  if (const auto refusal = rules_.submit(state, job, tenant, desc.user_id)) {
    judged.decision.refused = refusal->why;
    judged.decision.message = refusal->message;
    return judged;
  }
  const std::vector<std::string> written = job.written();
  if (written.empty() && judged.bellows) return judged;
  job.apply(desc);
  judged.decision = decide_request(state, request_of(state, desc, false));
  if (judged.decision.refused && !written.empty())
    judged.decision.message += changed_by_rules(written);
  return judged;
}

int AdmissionPlugin::modify(job_desc_msg_t& desc, job_record_t* job, uid_t uid,
                            char** err_msg) const {
  if (const auto why = over_bounds(desc)) return refuse_size(*why, "an update", uid, err_msg);
  drop_zero_divisor(desc);
  const PolicyWatcher::State state = watcher_.current();
  const bool controller = is_controller(state, uid);
  const bool is_operator =
      !controller && (uid == 0 || (validate_operator && validate_operator(uid)));
  // Nobody else may change it, which Slurm sees to later.
  const bool shown = is_operator && desc.admin_comment;
  const bool enabled = !state.policy || state.policy->enabled;
  const bool concerned =
      enabled && (touches_contract(desc) || (!is_operator && concerns_hook(state, desc)));
  if ((!concerned && !shown) || !copy_job_record_to_job_desc) return SLURM_SUCCESS;
  const JobDescPtr record(copy_job_record_to_job_desc(job));
  if (!record) return SLURM_SUCCESS;
  const std::uint32_t id = BELLOWS_JOB_DESC_ID(record);
  // Slurm asks us before it looks whose job it is, and refuses this one itself.
  if (!is_operator && !controller && uid != record->user_id &&
      !may_coordinate(uid, record->account ? record->account : ""))
    return SLURM_SUCCESS;
  if (!is_operator && !controller && names_own_reservation(desc.reservation))
    return refuse_update(Refusal::policy, kReservedName, id, uid, err_msg);
  const auto line = contract_line(*record);
  if (shown) show_contract(desc, line.value_or(""));
  if (is_operator) {
    if (line && concerned)
      slurm_info(
          "job_submit/bellows: JobId=%u changed by uid %u, who is not bound by its contract %s", id,
          uid, line->c_str());
    return SLURM_SUCCESS;
  }
  const UpdateDecision decision = judge_update(state, *record, line, desc);
  if (!decision.refused) {
    if (desc.account && (line || plain_contract_line(*record))) settle_account(desc);
    apply_changes(desc, decision.changes);
    return SLURM_SUCCESS;
  }
  return refuse_update(*decision.refused, decision.message, id, uid, err_msg);
}

/// As judge().
UpdateDecision AdmissionPlugin::judge_update(const PolicyWatcher::State& state,
                                             const job_desc_msg_t& record,
                                             const std::optional<std::string>& line,
                                             job_desc_msg_t& desc) const {
  UpdateDecision decision = decide_change(state, record, line, desc);
  if (decision.refused || !state.hook || !state.hook->has_modify()) return decision;
  auto parsed = line ? Contract::parse(*line) : Result<Contract>(Contract());
  const Contract* contract = line && parsed ? &*parsed : nullptr;
  const Origin owner = owner_of(state, record);
  const Tenant* tenant = contract ? state.policy->find_tenant(contract->tenant)
                                  : choose_tenant(*state.policy, owner).tenant;
  JobFields job(record, facts_of_job(record, contract, owner), JobFields::Access::read);
  JobFields change(desc, facts_of_update(record, desc, contract, decision.changes),
                   JobFields::Access::write);
  if (const auto refusal = rules_.modify(state, job, change, tenant, record.user_id))
    return {refusal->why, refusal->message, {}};
  const std::vector<std::string> written = change.written();
  if (written.empty()) return decision;
  change.apply(desc);
  decision = decide_change(state, record, line, desc);
  if (decision.refused) decision.message += changed_by_rules(written);
  return decision;
}

}  // namespace bellows
