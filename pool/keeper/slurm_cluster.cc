// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/slurm_cluster.h"

#include <fmt/core.h>
#include <unistd.h>

#include <utility>

#include "common/text.h"
#include "launcher/base/program_output.h"
#include "pool/keeper/job_environment.h"
#include "pool/keeper/job_names.h"

namespace bellows::pool {
namespace {

/// Longer than slurmctld takes under load, by sbatch's own MessageTimeout.
constexpr std::chrono::seconds kSubmitsWithin{60};
constexpr std::size_t kMostBytes = 64 * 1024;
constexpr std::size_t kMostShown = 400;

std::vector<std::string> member_environment(const std::string& pool, const std::string& dir) {
  std::vector<std::string> environment = environment_outside_jobs();
  environment.push_back(pool_variable({.name = pool}));
  environment.push_back("BELLOWS_POOL=" + dir);
  return environment;
}

Error failure_of(const ProgramOutput& output, std::string_view what) {
  const std::string said = one_line(trim(output.err), kMostShown);
  return Error{ErrorKind::unavailable,
               fmt::format("{}: {}", what, said.empty() ? output.exit.to_string() : said)};
}

}  // namespace

SlurmCluster::SlurmCluster(std::string pool, std::string dir, std::uint32_t keeper)
    : pool_(std::move(pool)),
      dir_(std::move(dir)),
      keeper_(keeper),
      environment_(member_environment(pool_, dir_)) {}

Result<std::uint32_t> SlurmCluster::submit() {
  const std::vector<std::string> command = {"sbatch",
                                            "--parsable",
                                            "--no-requeue",
                                            "--job-name=" + member_job_name(pool_),
                                            "--output=" + dir_ + "/log/%j.out",
                                            dir_ + "/member.sbatch"};
  const auto output = output_of(command, kSubmitsWithin, kMostBytes, environment_);
  if (!output) return output.error();
  if (!output->exit.ok()) return failure_of(*output, "sbatch refuses a member");
  // With --clusters there is a name behind it.
  const auto job = parse_uint(split(trim(output->out), ';')[0]);
  if (!job || *job > UINT32_MAX)
    return Error{ErrorKind::internal, "sbatch did not name the job: " + one_line(output->out, 80)};
  return static_cast<std::uint32_t>(*job);
}

Status SlurmCluster::cancel(std::uint32_t job) {
  const auto output = output_of({"scancel", std::to_string(job)}, kSubmitsWithin, kMostBytes);
  if (!output) return output.error();
  if (!output->exit.ok()) return failure_of(*output, "scancel");
  return {};
}

Result<PoolQueue> SlurmCluster::jobs() {
  auto jobs = slurm_.jobs_of(getuid());
  if (!jobs) return jobs.error();
  PoolQueue found;
  for (SlurmJob& job : *jobs) {
    if (job.id == keeper_)
      found.keeper = std::move(job);
    else if (job.name == member_job_name(pool_) && is_of_pool_in(dir_, job))
      found.members.push_back(std::move(job));
  }
  return found;
}

}  // namespace bellows::pool
