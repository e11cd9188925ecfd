// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "launcher/base/exit_status.h"
#include "launcher/base/program_output.h"
#include "pool/command/commands.h"
#include "pool/command/keeper_client.h"
#include "pool/command/keeper_job.h"
#include "pool/wire/pool_place.h"
#include "slurm/client.h"

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kLook{500};
constexpr std::chrono::seconds kCancelsWithin{60};
constexpr std::size_t kMostOutput = 64 * 1024;

struct Options {
  std::string name;
  std::uint32_t timeout = 120;
  bool force = false;
};

Status cancel(const std::vector<std::uint32_t>& jobs) {
  if (jobs.empty()) return {};
  std::vector<std::string> command = {"scancel"};
  for (const std::uint32_t job : jobs) command.push_back(std::to_string(job));
  const auto output = output_of(command, kCancelsWithin, kMostOutput);
  return output ? Status() : Status(output.error());
}

/// Orders the end, by way of the keeper or, with --force, without one.
Status order_end(const Options& options, const std::string& dir) {
  if (!options.force) {
    ChangeRequest request;
    request.set_end(true);
    const auto pool = change_pool(dir, request);
    if (pool || pool.error().kind != ErrorKind::unavailable) return pool ? Status() : pool.error();
    return Error{ErrorKind::unavailable,
                 pool.error().text + "; --force cancels the pool's jobs without draining them"};
  }
  const auto jobs = jobs_of_pool(options.name, PoolJobs::all, dir);
  return jobs ? cancel(*jobs) : Status(jobs.error());
}

Status wait_for_end(const Options& options, const std::string& dir) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout);
  for (;;) {
    const auto jobs = jobs_of_pool(options.name, PoolJobs::all, dir);
    if (jobs && jobs->empty()) return {};
    // Until it is gone, the keeper replaces members that are cancelled.
    if (jobs && options.force) (void)cancel(*jobs);
    if (std::chrono::steady_clock::now() > until)
      return jobs ? Error{ErrorKind::busy,
                          fmt::format("pool {} still has {} jobs after {} s; it goes on ending: "
                                      "delete it again later, or with --force",
                                      options.name, jobs->size(), options.timeout)}
                  : jobs.error();
    std::this_thread::sleep_for(kLook);
  }
}

int run(const Options& options) {
  const auto dir = find_pool(options.name);
  if (!dir) return fail(dir.error());
  if (const Status usable = SlurmClient::usable(); !usable) return fail(usable.error());
  if (const Status ordered = order_end(options, *dir); !ordered) {
    // It may have ended already, and only its directory is left.
    const auto jobs = jobs_of_pool(options.name, PoolJobs::all, *dir);
    if (!jobs || !jobs->empty()) return fail(ordered.error());
  }
  if (const Status ended = wait_for_end(options, *dir); !ended) {
    (void)fail(ended.error());
    return ended.error().kind == ErrorKind::busy ? kTimedOut : kUnreachable;
  }
  std::error_code failure;
  std::filesystem::remove_all(*dir, failure);
  if (failure) return fail({ErrorKind::io, "can't remove " + *dir + ": " + failure.message()});
  fmt::print("pool {} is gone\n", options.name);
  return kOk;
}

}  // namespace

void add_delete_command(CommandLine& pool) {
  CommandLine command =
      pool.add_command("delete", "Drain all members of a pool, and remove it with all it has");
  const auto options = std::make_shared<Options>();
  command.add_option("NAME", options->name, "The pool").required();
  command.add_option("--timeout", options->timeout, "Seconds to wait for the end of its jobs")
      .value_name("SECONDS")
      .show_default();
  command.add_flag("--force", options->force, "Cancel its jobs: members do not end their calls");
  command.run([options] { return run(*options); });
}

}  // namespace bellows::pool
