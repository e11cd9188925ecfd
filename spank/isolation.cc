// SPDX-License-Identifier: Apache-2.0
#include "spank/isolation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>

#include "spank/container/fence.h"
#include "spank/container/task.h"
#include "spank/container/views.h"

namespace bellows::spank {
namespace {

/// What one slurmstepd, and each task process that it forks, keeps from one of Slurm's calls to the
/// next: SPANK passes nothing along. A slurmstepd runs one step, and a task process one task.
struct Step {
  std::uint32_t job = 0;
  std::uint32_t id = 0;
  uid_t uid = 0;
  bool begun = false;
  std::optional<container::Lease> lease;
  std::optional<Contract> contract;
  container::Spec spec;
  std::optional<container::TaskEntry> entry;
  std::string problem;  ///< why there can't be a view; for the user, in task_init
};
Step step;  // NOLINT: see above

std::optional<std::string> environment(spank_t spank, const char* name) {
  std::array<char, 4096> value{};
  if (spank_getenv(spank, name, value.data(), value.size()) != ESPANK_SUCCESS) return std::nullopt;
  return value.data();
}

/// The descriptor itself, not Slurm's log: that is buffered, and this process ends now.
[[noreturn]] void refuse(std::string_view phase, std::string_view why) {
  const std::string line =
      fmt::format("slurmstepd: error: bellows: container: {}: {}\n", phase, why);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(1);
}

std::string working_directory() {
  std::array<char, 4096> path{};
  return ::getcwd(path.data(), path.size()) == nullptr ? "" : path.data();
}

container::Wanted wanted(spank_t spank) {
  container::Wanted result;
  result.spec = step.spec;
  result.cwd = working_directory();
  result.home = environment(spank, "HOME").value_or("");
  const auto gpus = environment(spank, "SLURM_GPUS_ON_NODE");
  const auto given = container::gpus_given(gpus, step.contract->gpus.max());
  if (!given) refuse("counting the GPUs", given.error().text);
  result.gpus = static_cast<std::uint32_t>(*given);
  if (environment(spank, "PMIX_NAMESPACE"))
    result.pmix_dir = fmt::format("/tmp/spmix_appdir_{}_{}.{}", step.uid, step.job, step.id);
  return result;
}

}  // namespace

void begin_views(spank_t spank, const Settings& settings,
                 const Result<std::optional<Contract>>& contract) {
  if (spank_get_item(spank, S_JOB_ID, &step.job) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_STEPID, &step.id) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &step.uid) != ESPANK_SUCCESS)
    return;
  step.begun = true;
  if (!contract) step.problem = contract.error().text;
  if (!contract || !*contract) return;
  step.contract = *contract;
  auto lease = container::Lease::take(settings.run_dir, step.job);
  if (lease)
    step.lease = *std::move(lease);
  else
    step.problem = lease.error().text;
}

void open_view(spank_t, const Settings& settings) {
  if (!step.contract || !step.problem.empty()) return;
  auto entry =
      container::TaskEntry::open(settings.run_dir, step.job, !step.spec.image.empty());
  if (entry)
    step.entry.emplace(*std::move(entry));
  else
    step.problem = entry.error().text;
}

void enter_view(spank_t spank, const Settings& settings) {
  const char* phase = "preparing the job's view";
  try {
    if (!step.begun) step.problem = "the plugin failed before; see slurmd's log";
    if (!step.problem.empty()) refuse(phase, step.problem);
    if (!step.contract) return;
    if (!step.entry) refuse(phase, "it was never begun");
    container::Phases phases([&](const char* begun) {
      phase = begun;
      if (settings.site.pause_at == begun) ::raise(SIGSTOP);
    });
    const Status status = step.entry->enter(wanted(spank), settings.site, phases);
    if (!status.ok()) refuse(phase, status.error().text);
    step.entry.reset();
  } catch (const std::exception& e) {
    refuse(phase, e.what());
  }
}

void end_views() {
  if (!step.lease) return;
  if (const Status status = step.lease->leave(); !status.ok())
    slurm_error("bellows: job %u: %s", step.job, status.error().text.c_str());
  step.lease.reset();
}

void collect_views(const Settings& settings) {
  if (const Status status = container::collect_views(settings.run_dir); !status.ok())
    slurm_error("bellows: %s", status.error().text.c_str());
}

}  // namespace bellows::spank
