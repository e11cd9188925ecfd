// SPDX-License-Identifier: Apache-2.0
#include "spank/submit.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "common/contract.h"
#include "common/gpus_range.h"
#include "common/text.h"
#include "spank/controller.h"
#include "spank/environment.h"
#include "spank/job_store.h"

namespace bellows::spank {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

/// In slurmstepd (`remote`) a value means nothing: only the stored contract counts there.
int report(const char* option, const Status& status, int remote) {
  if (status.ok() || remote != 0) return 0;
  slurm_error("bellows: --%s: %s", option, status.error().text.c_str());
  return -1;
}

int take_framework(int, const char* value, int remote) noexcept {
  try {
    const auto framework = parse_framework(value == nullptr ? "" : value);
    return report("framework", framework ? Status() : framework.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_gpus_range(int, const char* value, int remote) noexcept {
  try {
    const auto range = GpusRange::parse(value == nullptr ? "" : value);
    return report("gpus-range", range ? Status() : range.error(), remote);
  } catch (...) {
    return -1;
  }
}

int take_batch_range(int, const char* value, int remote) noexcept {
  try {
    const auto range = BatchRange::parse(value == nullptr ? "" : value);
    return report("batch-range", range ? Status() : range.error(), remote);
  } catch (...) {
    return -1;
  }
}

// Slurm's structure has char* members that it only copies.
char* literal(const char* text) { return const_cast<char*>(text); }

std::optional<std::uint32_t> outer_job() {
  const auto id = environment("SLURM_JOB_ID");
  if (!id) return std::nullopt;
  const auto number = parse_uint(*id);
  if (!number || *number == 0 || *number > UINT32_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

}  // namespace

void register_options(spank_t spank) {
  spank_option framework = {
      literal("framework"),
      literal("NAME[:VERSION]"),
      literal("deep-learning framework of an elastic job, such as pytorch:2.1 (Bellows)"),
      1,
      0,
      take_framework};
  spank_option range = {
      literal("gpus-range"),
      literal("RANGE"),
      literal("numbers of GPUs the job may run with: N, MIN-MAX, MIN-MAX:STEP or A,B,C (Bellows)"),
      1,
      0,
      take_gpus_range};
  spank_option batch = {
      literal("batch-range"),
      literal("MIN-MAX"),
      literal("global batch sizes the program may use as its number of GPUs changes (Bellows)"),
      1,
      0,
      take_batch_range};
  for (spank_option* option : {&framework, &range, &batch})
    if (spank_option_register(spank, option) != ESPANK_SUCCESS)
      slurm_error("bellows: cannot register the option --%s", option->name);
}

void forget_outer_job() {
  if (!environment("SLURM_JOB_ID")) return;
  for (const std::string& name : option_variables()) ::unsetenv(name.c_str());
}

void forget_outer_contract() {
  if (!environment("SLURM_JOB_ID")) return;
  for (const Change& change : no_job_variables()) ::unsetenv(change.name.c_str());
  ::unsetenv(kSizeVariable);
  ::unsetenv(kRunVariable);
}

void correct_size_for_srun(const Settings& settings) {
  const auto job = outer_job();
  // A step inside a step has the outer step's size, which is not stale.
  if (!job || environment("SLURM_STEP_ID")) return;
  const auto contract = JobStore(settings.run_dir).load(*job, ::getuid());
  if (!contract || !contract->has_value()) return;
  const auto view = read_job(*job);
  if (!view || !view->running) return;
  // The batch step has corrected this size already; what differs now, the script has set itself.
  if (environment(kSizeVariable) == size_marker(view->held)) return;
  for (const Change& change : size_corrections(view->held, is_elastic(**contract), environment)) {
    if (change.value)
      ::setenv(change.name.c_str(), change.value->c_str(), 1);
    else
      ::unsetenv(change.name.c_str());
  }
}

}  // namespace bellows::spank
