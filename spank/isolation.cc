// SPDX-License-Identifier: Apache-2.0
#include "spank/isolation.h"

#include <fmt/core.h>
#include <slurm/slurm.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "common/container/image_reference.h"
#include "common/container/rights.h"
#include "common/container/spec_text.h"
#include "common/fd.h"
#include "common/lasting/lasting.h"
#include "common/variables.h"
#include "modelstore/wire/model_wire.h"
#include "spank/container/base_view.h"
#include "spank/container/container_name.h"
#include "spank/container/entrypoint.h"
#include "spank/container/fence.h"
#include "spank/container/gpu_nodes.h"
#include "spank/container/image.h"
#include "spank/container/phases.h"
#include "spank/container/task.h"
#include "spank/container/views.h"
#include "spank/epilog.h"
#include "spank/gpu_addresses.h"
#include "spank/job_store.h"
#include "spank/lasting.h"
#include "spank/leftovers.h"
#include "spank/model_socket.h"
#include "spank/save.h"
#include "spank/step_environment.h"
#include "spank/step_prolog.h"
#include "spank/step_save.h"
#include "spank/task_variables.h"

namespace bellows::spank {
namespace {

/// What one slurmstepd, and each task process that it forks, keeps from one of Slurm's calls to the
/// next: SPANK passes nothing along. A slurmstepd runs one step, and a task process one task.
struct Step {
  std::uint32_t job = 0;
  std::uint32_t id = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t stepd = 0;  ///< slurmstepd's
  bool begun = false;
  bool plain = false;  ///< the job is one, with a contract for containers or without any
  std::optional<container::Lease> lease;
  std::optional<Contract> contract;
  container::Spec spec;
  container::Account account;
  std::optional<container::TaskEntry> entry;
  SavedTasks saved_tasks;
  std::vector<std::string> cgroups;  ///< the job's, while slurmstepd was in them
  std::string remark;                ///< for the user, in task_init
  std::string problem;               ///< why there can't be a view; for the user, in task_init
};
Step step;  // NOLINT: see above

/// A killed process is gone within milliseconds, unless its file system blocks it.
constexpr std::chrono::milliseconds kEndingLimit{5000};
constexpr std::size_t kMostCgroups = 65536;

/// What is done before there are phases to count, or a watchdog.
constexpr const char* kLeasing = "sharing the job's views";
constexpr const char* kOpening = "opening the job's views";

/// For tests of crashes.
void pause_at(const Settings& settings, const char* begun) {
  if (settings.site.pause_at == begun) ::raise(SIGSTOP);
}

void tell(std::string_view line) {
  // The descriptor itself, not Slurm's log: that is buffered, and the process may end now.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

[[noreturn]] void refuse(std::string_view phase, std::string_view why) {
  tell(fmt::format("slurmstepd: error: bellows: container: {}\n", container::refusal(phase, why)));
  ::_exit(1);
}

std::string working_directory() {
  std::array<char, 4096> path{};
  return ::getcwd(path.data(), path.size()) == nullptr ? "" : path.data();
}

bool script_in_image(const Settings& settings) {
  return settings.site.batch_in_container && step.contract &&
         step.contract->extra_value(Contract::kScriptKey) == Contract::kInImage;
}

/// Takes the variable that carries srun's --container options out of the step's environment. Anyone
/// can forge it, so it is read as strictly as at the prompt, and container::effective_spec says
/// what of it the step gets.
Status choose_spec(spank_t spank, const Settings& settings) {
  const auto text = environment(spank, kStepVariable);
  unset_all(spank, kStepVariable);
  const auto asked = container::parse_spec(text.value_or(""));
  if (!asked) return asked.error();
  auto spec = container::effective_spec(step.contract ? &*step.contract : nullptr, *asked);
  if (!spec) return spec.error();
  if (step.contract && container::outlasts_job(*spec, settings.site, step.job))
    spec = with_lasting(*step.contract, *asked, *spec, settings.site.lasting.directory, step.uid,
                        step.remark);
  if (!spec) return spec.error();
  step.spec = *std::move(spec);
  if (step.id == SLURM_BATCH_SCRIPT && !script_in_image(settings)) {
    step.spec.image.clear();
    step.spec.name.clear();
    step.spec.save.clear();
  }
  // What the job says is for its script: steps one after another would write the same file.
  if (step.id != SLURM_BATCH_SCRIPT) step.spec.save = asked->save;
  if (!step.spec.save.empty() && !container::wants_container(step.spec))
    return Error{ErrorKind::invalid,
                 "--container-save has no container to save; give --container-image or "
                 "--container-name, too"};
  if (container::wants_container(step.spec)) step.account = account_of(step.uid);
  return {};
}

std::string batch_script(spank_t spank) {
  int count = 0;
  char** words = nullptr;
  if (step.id != SLURM_BATCH_SCRIPT || !container::wants_container(step.spec) ||
      spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS || count < 1)
    return "";
  return words[0];
}

/// An image in a registry is fetched by a program of the user's, once for all tasks of a node.
container::ImageImport image_import(spank_t spank, const container::Site& site) {
  container::ImageImport result;
  char** variables = nullptr;
  if (!container::is_in_registry(step.spec.image) ||
      spank_get_item(spank, S_JOB_ENV, &variables) != ESPANK_SUCCESS)
    return result;
  std::vector<std::string> job;
  for (char** entry = variables; *entry != nullptr; ++entry) job.emplace_back(*entry);
  result.program =
      site.image_importer.empty() ? BELLOWS_BINDIR "/bellows-image" : site.image_importer;
  result.image = step.spec.image;
  if (!site.image_cache.empty()) result.cache = fmt::format("{}/{}", site.image_cache, step.uid);
  result.budget_mib = site.image_budget_mib;
  result.job = step.job;
  result.environment = container::import_environment(job, step.account.user, step.account.home);
  result.tells = environment(spank, "SLURM_LOCALID") == "0";
  return result;
}

container::TaskRequest wanted(spank_t spank, const Settings& settings) {
  container::TaskRequest result;
  result.spec = step.spec;
  result.step = step.id;
  result.plain_job = step.plain;
  result.import = image_import(spank, settings.site);
  if (container::wants_container(step.spec) && !settings.site.task_prolog_in_container)
    result.prolog = take_prolog(spank, settings.site.phase_seconds);
  result.cwd = working_directory();
  result.account = step.account;
  result.home = environment(spank, "HOME").value_or("");
  if (result.home.empty()) result.home = step.account.home;
  std::array<char, 256> terminal{};
  if (::ttyname_r(STDIN_FILENO, terminal.data(), terminal.size()) == 0)
    result.console = terminal.data();
  const auto gpus = environment(spank, "SLURM_GPUS_ON_NODE");
  const auto given = container::gpus_given(
      gpus, step.plain ? std::nullopt : std::optional(step.contract->gpus.max()));
  if (!given) refuse("counting the GPUs", given.error().text);
  result.gpus = *given;
  result.script = batch_script(spank);
  if (const auto directory = environment(spank, "PMIX_SERVER_TMPDIR");
      directory && environment(spank, "PMIX_NAMESPACE")) {
    result.pmix_dir = *directory;
    result.pmix_session = fmt::format("/tmp/spmix_appdir_{}_{}.{}", step.uid, step.job, step.id);
    // As PMIx 5 calls its way to keep data in shared memory.
    const auto ways = environment(spank, "PMIX_GDS_MODULE");
    result.pmix_shares_session = ways && ways->find("shmem") != std::string::npos;
  }
  if (step.plain) return result;
  result.run_dir = JobStore(settings.run_dir).user_dir(step.job);
  result.own = {{BELLOWS_LIBDIR "/libbellows.so.0", "libbellows.so.0"},
                {BELLOWS_LIBDIR "/libbellows_ps.so.0", "libbellows_ps.so.0"},
                {BELLOWS_BINDIR "/bellows-ps", "bin/bellows-ps"}};
  result.model_socket = {model_socket_of(*step.contract, result.run_dir), modelwire::kSocket};
  return result;
}

void require(const Status& status) {
  if (!status.ok()) refuse("setting the environment", status.error().text);
}

container::Variables variables_of_container(spank_t spank, const Settings& settings) {
  if (!container::wants_container(step.spec)) return {};
  if (!step.contract->extra_value(Contract::kModelsKey).empty())
    require(set_variable(spank, kModelSocketVariable, modelwire::kSocket));
  return container_variables(spank, step.spec, settings.site);
}

/// With no watchdog, since how long an entrypoint takes is up to the job's user.
container::Variables through_entrypoint(spank_t spank, const Settings& settings,
                                        container::Variables variables) {
  if (!container::wants_container(step.spec)) return variables;
  const auto runs = container::runs_entrypoint(step.spec, settings.site);
  if (!runs) refuse("looking for the image's entrypoint", runs.error().text);
  if (!*runs) return variables;
  auto changed = entrypoints_variables(spank, step.spec, variables);
  if (!changed) refuse("running the image's entrypoint", changed.error().text);
  return *std::move(changed);
}

void tell_remarks(const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks)
    tell(fmt::format("slurmstepd: bellows: container: {}\n", remark));
}

/// srun drops what comes when a task was killed.
void tell_error(const Error& error) {
  slurm_info("bellows: container: %s", error.text.c_str());
  tell(fmt::format("slurmstepd: error: bellows: container: {}\n", error.text));
}

void end_models(const Settings& settings, std::uint32_t job) {
  const Status ended = ModelSocket(settings, job).end();
  if (!ended.ok()) slurm_error("bellows: job %u: models: %s", job, ended.error().text.c_str());
}

/// Of the task. Only what the fence leaves it is the job's: where there is none, that is not known.
void lend_on_gpus(spank_t spank, const Settings& settings) {
  const Contract& contract = *step.contract;
  if (contract.extra_value(Contract::kModelOnKey) != Contract::kOnGpu) return;
  const auto given =
      container::gpus_given(environment(spank, "SLURM_GPUS_ON_NODE"), contract.gpus.max());
  const auto nodes = container::find_gpu_nodes("/");
  if (!given || !nodes || !container::check_fence(*nodes, *given)) return;
  const auto addresses = whole_gpus("");
  std::vector<std::string> gpus;
  for (const unsigned minor : open_gpus())
    if (const auto found = addresses.find(minor); found != addresses.end())
      gpus.push_back(found->second);
  const Status lent = ModelSocket(settings, step.job).lend_on_gpus(gpus, contract);
  if (!lent.ok()) slurm_error("bellows: job %u: models: %s", step.job, lent.error().text.c_str());
}

void tell_phases(const container::Phases& phases) {
  std::string text;
  for (const auto& note : phases.notes())
    text += fmt::format("slurmstepd: bellows: container: {}\n", note);
  for (const auto& entry : phases.entries())
    text += fmt::format("slurmstepd: bellows: container: {}: {} us\n", entry.name,
                        entry.took.count() / 1000);
  tell(text);
}

void report(const Status& status) {
  if (!status.ok()) slurm_error("bellows: job %u: %s", step.job, status.error().text.c_str());
}

/// Those that are this step's own, at its end; at its begin, what a killed slurmstepd left.
void forget_containers(const Settings& settings) {
  if (container::wants_container(step.spec))
    report(container::forget_own_containers(settings.run_dir, step.job, step.stepd));
}

/// A plain job's are Slurm's to end, but for what containers have beside its steps.
void end_processes() {
  report(step.plain ? end_beside_steps(container::entered_cgroups(step.cgroups), kEndingLimit)
                    : end_leftovers(step.cgroups, kEndingLimit));
  container::remove_job_cgroup(step.cgroups);
}

/// Of a plain job, all but containers is as Slurm has it. While the job is on the node, it keeps
/// those that have a name.
void stand_by(const Settings& settings) {
  step.contract.reset();
  if (step.id != SLURM_EXTERN_CONT && step.id != SLURM_BATCH_SCRIPT) return;
  auto lease =
      container::Lease::take(settings.run_dir, step.job, container::JobOwner{step.uid, step.gid});
  if (lease)
    step.lease = *std::move(lease);
  else
    slurm_error("bellows: job %u: %s", step.job, lease.error().text.c_str());
}

}  // namespace

void begin_views(spank_t spank, const Settings& settings,
                 const Result<std::optional<Contract>>& contract) {
  if (spank_get_item(spank, S_JOB_ID, &step.job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step.id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &step.uid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_GID, &step.gid) != ESPANK_SUCCESS)
    return;
  step.begun = true;
  step.stepd = ::getpid();
  if (!contract) {
    step.problem = contract.error().text;
    return;
  }
  step.contract = *contract;
  step.plain = !step.contract || step.contract->is_plain();
  if (const Status status = choose_spec(spank, settings); !status.ok()) {
    step.problem = status.error().text;
    return;
  }
  if (!step.contract) return;
  if (step.plain && !container::wants_container(step.spec)) return stand_by(settings);
  pause_at(settings, kLeasing);
  auto lease =
      container::Lease::take(settings.run_dir, step.job, container::JobOwner{step.uid, step.gid});
  if (!lease) {
    step.problem = lease.error().text;
    return;
  }
  step.lease = *std::move(lease);
  forget_containers(settings);
  // The job may not need it, or only some of the models: a program is told when it opens one.
  const Status lent = ModelSocket(settings, step.job).lend(step.uid, *step.contract);
  if (!lent.ok()) slurm_error("bellows: job %u: models: %s", step.job, lent.error().text.c_str());
}

/// Whether the container, or its image, needs a process that outlives the step.
bool needs_job_process(const container::Site& site) {
  return container::outlasts_job(step.spec, site, step.job) ||
         container::may_be_own(step.spec.image, site) || container::is_in_registry(step.spec.image);
}

void open_view(spank_t spank, const Settings& settings) {
  if (!step.contract || !step.problem.empty()) return;
  lend_on_gpus(spank, settings);
  pause_at(settings, kOpening);
  auto entry = container::TaskEntry::open(settings.run_dir, step.job,
                                          container::JobOwner{step.uid, step.gid}, step.spec,
                                          settings.site, step.stepd);
  if (!entry) {
    step.problem = entry.error().text;
    return;
  }
  step.entry.emplace(*std::move(entry));
  if (!needs_job_process(settings.site)) return;
  const auto lines = read_file("/proc/self/cgroup", kMostCgroups);
  if (!lines) return;
  const auto cgroups = job_cgroups(step.job, *lines);
  const Status noted = note_cgroups(settings.run_dir, step.job, cgroups);
  report(noted);
  if (noted.ok()) step.entry->keep_processes_in(container::JobCgroup::open(cgroups));
}

/// noexcept: a task whose refusal fails as well must end, not continue without a view.
void enter_view(spank_t spank, const Settings& settings) noexcept {
  const char* phase = "preparing the job's view";
  try {
    if (!step.begun) step.problem = "the plugin failed before; see slurmd's log";
    if (!step.problem.empty()) refuse(phase, step.problem);
    if (settings.site.lasting.wanted && settings.site.lasting.directory != lasting::kDirectory)
      (void)set_variable(spank, lasting::kDirectoryVariable, settings.site.lasting.directory);
    if (!step.contract) return;
    if (!step.entry) refuse(phase, "it was never started");
    container::Phases phases([&](const char* begun) {
      phase = begun;
      pause_at(settings, begun);
    });
    const Status status = step.entry->enter(wanted(spank, settings), settings.site, phases);
    if (!status.ok()) refuse(phase, status.error().text);
    phases.begin("setting the environment");
    require(move_pmix(spank, step.entry->pmix_moved()));
    auto variables = variables_of_container(spank, settings);
    const std::string prolog_said = step.entry->prolog_said();
    tell_remarks(phases.remarks());
    // One task for all, whereas only one has built what there was nothing of.
    if (environment(spank, "SLURM_LOCALID") == "0") {
      if (!step.remark.empty()) tell_remarks({step.remark});
      tell_remarks(step.entry->remarks());
    }
    phases.end();
    if (step.spec.verbose) tell_phases(phases);
    step.entry.reset();
    variables = through_entrypoint(spank, settings, std::move(variables));
    require(set_variables(spank, variables));
    require(obey_prolog(spank, prolog_said));
  } catch (const std::exception& e) {
    refuse(phase, e.what());
  }
}

void begin_task(spank_t spank) {
  if (!step.spec.save.empty()) note_start(spank, step.saved_tasks);
}

void begin_epilogs(spank_t spank, const Settings& settings) {
  if (const auto lines = read_file("/proc/self/cgroup", kMostCgroups))
    step.cgroups = job_cgroups(step.job, *lines);
  std::uint32_t tasks = 0;
  if ((step.begun && step.plain) || step.id == SLURM_EXTERN_CONT ||
      spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS)
    return;
  take_epilogs(tasks, [run_dir = settings.run_dir]() -> Status {
    if (!step.lease) return Error{ErrorKind::not_found, step.problem};
    return container::enter_base(run_dir, step.job);
  });
}

void end_task(spank_t spank, const Settings& settings) {
  if (step.spec.save.empty() || !step.lease || !note_end(spank, step.saved_tasks)) return;
  auto request = step_save(spank, settings, step.saved_tasks);
  if (!request) return tell_error(request.error());
  request->container = container::container_name(step.spec, settings.site, step.stepd);
  request->on_host = step.plain;
  request->owner = {step.uid, step.gid};
  request->file.path = step.spec.save;
  const auto saved = save_container(*request);
  if (!saved)
    tell_error(saved.error());
  else if (!saved->empty())
    tell_remarks({*saved});
}

void end_views(const Settings& settings) {
  if (!step.lease) return;
  forget_containers(settings);
  const auto last = [&] {
    end_processes();
    if (!step.plain) end_models(settings, step.job);
  };
  report(step.lease->leave(last));
  step.lease.reset();
  if (settings.site.lasting.wanted &&
      (step.id == SLURM_EXTERN_CONT || step.id == SLURM_BATCH_SCRIPT))
    report(sweep_lasting(settings.site.lasting.directory, settings.site.lasting.days));
}

void collect_views(const Settings& settings) {
  const Status status = container::collect_views(settings.run_dir, [&](std::uint32_t job) {
    const Status ended = end_noted(settings.run_dir, job, kEndingLimit);
    if (!ended.ok()) slurm_error("bellows: job %u: %s", job, ended.error().text.c_str());
    end_models(settings, job);
  });
  if (!status.ok()) slurm_error("bellows: %s", status.error().text.c_str());
}

}  // namespace bellows::spank
