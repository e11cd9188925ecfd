// SPDX-License-Identifier: Apache-2.0
#include "spank/stepd.h"

#include <fmt/core.h>
#include <slurm/slurm.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "common/contract.h"
#include "common/text.h"
#include "common/variables.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/host.h"
#include "spank/isolation.h"
#include "spank/job_store.h"
#include "spank/model_socket.h"
#include "spank/rescue.h"
#include "spank/step_environment.h"

namespace bellows::spank {
namespace {

struct Step {
  std::uint32_t job = 0;
  std::uint32_t id = 0;
  uid_t uid = 0;
  gid_t gid = 0;

  container::JobOwner owner() const { return {uid, gid}; }
  bool is_batch() const { return id == SLURM_BATCH_SCRIPT; }
};

std::optional<Step> identify(spank_t spank) {
  Step step;
  if (spank_get_item(spank, S_JOB_ID, &step.job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step.id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &step.uid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_GID, &step.gid) != ESPANK_SUCCESS)
    return std::nullopt;
  return step;
}

void change_environment(spank_t spank, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    unset_all(spank, change.name);
    if (!change.value) continue;
    if (spank_setenv(spank, change.name.c_str(), change.value->c_str(), 1) != ESPANK_SUCCESS)
      slurm_error("bellows: cannot set %s in the job's environment", change.name.c_str());
  }
}

Result<std::optional<Contract>> trusted_contract(const JobStore& store, const Step& step) {
  auto contract = store.load(step.job, step.uid);
  if (!contract && contract.error().kind != ErrorKind::not_found)
    slurm_error("bellows: job %u: %s", step.job, contract.error().text.c_str());
  return contract;
}

bool is_plain(const std::optional<Contract>& contract) { return !contract || contract->is_plain(); }

/// Slurm may skip the prolog when a job comes back to a node, so a node that lost its /run since
/// has no contract; nor has one whose file system was full. Then slurmctld says what was promised.
Result<std::optional<Contract>> remade_contract(const JobStore& store, const Step& step) {
  const auto info = read_promise(step.job);
  if (!info)
    return Error{info.error().kind,
                 fmt::format("the job's contract is not on this node: {}", info.error().text)};
  std::optional<Contract> promised;
  if (const auto line = Contract::line_in(info->admin_comment); !line.empty()) {
    auto contract = Contract::parse(line);
    if (!contract) return contract.error();
    promised = *std::move(contract);
    add_extra(*promised, kUserKey, account_of(step.uid).user);
    add_extra(*promised, kAccountKey, info->account);
  }
  const Status status =
      promised ? store.store(step.job, step.uid, *promised) : store.store_none(step.job);
  if (!status.ok())
    slurm_error("bellows: job %u: the contract can't be kept: %s", step.job,
                status.error().text.c_str());
  return promised;
}

/// What sbatch passes on, and Slurm exports into the batch script. A forged one costs its forger
/// the job.
bool wants_container(spank_t spank) {
  return environment(spank, std::string(kExported) + kContainerVariable).has_value();
}

/// On the host, the script would run without what it was submitted for.
Error no_container_promised() {
  return {
      ErrorKind::denied,
      "the job was submitted with --container options, but slurmctld did not grant it a container, "
      "as happens without job_submit/bellows or with \"enabled: false\" in bellows.yaml; tell the "
      "administrator, or submit the job without these options so that it runs on the host"};
}

/// S_SLURM_RESTART_COUNT is 0 in every run: slurmstepd fills in another field than the one it
/// reads.
std::optional<std::uint32_t> recorded_run(spank_t spank) {
  const auto text = environment(spank, kRunVariable);
  const auto run = text ? parse_uint(*text) : std::nullopt;
  if (!run || *run > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*run);
}

void prepare_batch(spank_t spank, const Step& step, const Contract& contract) {
  const auto info = read_job(step.job);
  // The copy that the exit hook reads is slurmstepd's own; a job requeued already says another run.
  change_environment(
      spank, {{kRunVariable, info && info->running ? std::optional(std::to_string(info->restarts))
                                                   : std::nullopt}});
  if (!info) {
    slurm_error("bellows: job %u: its size variables stay as they were at submission: %s", step.job,
                info.error().text.c_str());
    return;
  }
  const auto lookup = [spank](const std::string& name) { return environment(spank, name); };
  change_environment(spank, size_corrections(info->held, is_elastic(contract), lookup));
}

std::string node_name(spank_t spank) {
  if (auto name = environment(spank, "SLURMD_NODENAME")) return *name;
  return "";
}

void bring_back(spank_t spank, const JobStore& store, const Step& step, const Contract& contract,
                std::optional<std::uint32_t> gpus) {
  const auto rescues = store.rescues(step.job);
  const BatchEnd end{recorded_run(spank), node_name(spank), rescues ? *rescues : kMostRescues};
  if (gpus && !contract.gpus.contains(*gpus)) gpus.reset();
  const auto requeue = [&] {
    if (auto status = store.set_rescues(step.job, end.rescues + 1); !status.ok()) return status;
    return requeue_running(step.job);
  };
  const RescueReport report =
      rescue(end, gpus,
             {[&] { return read_job(step.job); }, requeue,
              [&](const NextStart& next) { return set_next_run(step.job, next, step.owner()); }});
  if (report.failed)
    slurm_error("bellows: job %u: its launcher was killed: %s", step.job, report.text.c_str());
  else if (report.requeued)
    slurm_info("bellows: job %u: its launcher was killed; requeued (rescue %u of %u)%s", step.job,
               end.rescues + 1, kMostRescues, report.text.c_str());
  else
    slurm_info("bellows: job %u: its launcher recorded no outcome; not requeued: %s", step.job,
               report.text.c_str());
}

}  // namespace

void prepare_step(spank_t spank, const Settings& settings) {
  const auto step = identify(spank);
  if (!step) return;
  const JobStore store(settings.run_dir);
  auto stored = trusted_contract(store, *step);
  if (!stored) stored = remade_contract(store, *step);
  if (step->id == SLURM_EXTERN_CONT) return begin_views(spank, settings, stored);
  const bool boxed = step->is_batch() && wants_container(spank);
  for (const std::string& name : option_variables()) unset_all(spank, name);
  if (boxed && stored && is_plain(*stored)) stored = no_container_promised();
  begin_views(spank, settings, stored);
  const std::optional<Contract> contract = stored ? *stored : std::nullopt;
  if (is_plain(contract)) {
    change_environment(spank, no_job_variables());
    unset_all(spank, kSizeVariable);
    unset_all(spank, kRunVariable);
    return;
  }
  const std::string user_dir = store.user_dir(step->job);
  const JobVariables variables =
      job_variables(*contract, step->job, user_dir, model_socket_of(*contract, user_dir));
  if (!variables.status.ok())
    slurm_error("bellows: job %u: checkpoint directory: %s", step->job,
                variables.status.error().text.c_str());
  change_environment(spank, variables.changes);
  if (!step->is_batch()) return unset_all(spank, kRunVariable);
  store.clear_launcher_active(step->job, step->uid);
  prepare_batch(spank, *step, *contract);
}

void finish_step(spank_t spank, const Settings& settings) {
  const auto step = identify(spank);
  if (!step || !step->is_batch()) return end_views(settings);
  const JobStore store(settings.run_dir);
  if (store.launcher_active(step->job, step->uid)) {
    const auto gpus = store.planned_gpus(step->job, step->uid);
    const auto contract = trusted_contract(store, *step);
    // The views have to end in any case.
    if (contract && !is_plain(*contract))
      guarded("rescue", [&] { bring_back(spank, store, *step, **contract, gpus); });
  }
  // This must come last: the last slurmstepd of the job ends every process of the owner in the
  // job's cgroups, including the one that asks slurmctld in the owner's name.
  end_views(settings);
}

}  // namespace bellows::spank
