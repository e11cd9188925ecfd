// SPDX-License-Identifier: Apache-2.0
#include "pool/command/keeper_job.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "common/own_process.h"
#include "common/text.h"
#include "launcher/base/job_paths.h"
#include "launcher/base/program_output.h"
#include "pool/keeper/job_environment.h"
#include "pool/keeper/job_names.h"
#include "slurm/client.h"

namespace bellows::pool {
namespace {

constexpr std::size_t kMostOutput = 64 * 1024;
constexpr std::chrono::seconds kSubmitsWithin{60};

/// Inside a job sbatch would not take the pool from a variable, since it could be that job's.
std::vector<std::string> keeper_environment(const PoolSettings& settings) {
  std::vector<std::string> environment =
      std::getenv("SLURM_JOB_ID") ? environment_outside_jobs() : own_environment();
  environment.push_back(
      pool_variable({.name = settings.name, .min = settings.min, .max = settings.max}));
  return environment;
}

}  // namespace

Result<std::string> submit_keeper(const PoolSettings& settings, const std::string& dir) {
  const std::string program = own_program();
  const std::string bellows = std::filesystem::path(program).parent_path() / "bellows";
  std::vector<std::string> command = {
      "sbatch",    "--parsable", "--requeue", "--dependency=singleton", "--open-mode=append",
      "--ntasks=1"};
  command.insert(command.end(), settings.keeper_options.begin(), settings.keeper_options.end());
  // Last, since by these the job is known.
  command.push_back("--job-name=" + keeper_job_name(settings.name));
  command.push_back("--output=" + dir + "/log/keeper.out");
  // The keeper is no MPI program, and not every Slurm has PMIx.
  command.push_back(
      fmt::format("--wrap=exec {} run --kind=plain -- {} keeper {}",
                  shell_quoted(access(bellows.c_str(), X_OK) == 0 ? bellows : "bellows"),
                  shell_quoted(program), settings.name));
  const auto output = output_of(command, kSubmitsWithin, kMostOutput, keeper_environment(settings));
  if (!output) return output.error();
  if (!output->exit.ok())
    return Error{ErrorKind::denied,
                 "Slurm refuses the pool's keeper: " + one_line(trim(output->err), 400)};
  return one_line(split(trim(output->out), ';')[0], 40);
}

Result<std::vector<std::uint32_t>> jobs_of_pool(const std::string& pool, PoolJobs which,
                                                const std::string& dir) {
  SlurmClient slurm;
  const auto jobs = slurm.jobs_of(getuid());
  if (!jobs) return jobs.error();
  std::vector<std::uint32_t> left;
  for (const SlurmJob& job : *jobs) {
    const bool has_name = job.name == keeper_job_name(pool) ||
                          (which == PoolJobs::all && job.name == member_job_name(pool));
    if (job.finished() || !has_name) continue;
    if (dir.empty() || is_of_pool_in(dir, job)) left.push_back(job.id);
  }
  return left;
}

}  // namespace bellows::pool
