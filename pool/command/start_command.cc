// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "launcher/base/exit_status.h"
#include "pool/command/commands.h"
#include "pool/command/keeper_job.h"
#include "pool/wire/pool_place.h"
#include "slurm/client.h"

namespace bellows::pool {
namespace {

/// Two keepers would each submit all members.
Status refuse_second(const std::string& name) {
  if (const Status usable = SlurmClient::usable(); !usable) return usable;
  // Also one of another folder: the two would not run at the same time.
  const auto jobs = jobs_of_pool(name, PoolJobs::keeper, "");
  if (!jobs) return jobs.error();
  if (jobs->empty()) return {};
  return Error{ErrorKind::busy,
               fmt::format("pool {} has a keeper already: job {}", name, jobs->front())};
}

int run(const std::string& name) {
  const auto dir = find_pool(name);
  if (!dir) return fail(dir.error());
  const auto settings = read_settings(*dir);
  if (!settings) return fail(settings.error());
  if (const Status alone = refuse_second(name); !alone) return fail(alone.error());
  const auto job = submit_keeper(*settings, *dir);
  if (!job) return fail(job.error());
  fmt::print("pool {}: its keeper is job {}\n", name, *job);
  return kOk;
}

}  // namespace

void add_start_command(CommandLine& pool) {
  CommandLine command = pool.add_command(
      "start", "Submit the keeper of a pool again, after it was cancelled or gave up");
  const auto name = std::make_shared<std::string>();
  command.add_option("NAME", *name, "The pool").required();
  command.run([name] { return run(*name); });
}

}  // namespace bellows::pool
