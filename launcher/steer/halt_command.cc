// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/steer/halt.h"
#include "launcher/steer/steer_process.h"
#include "slurm/client.h"

namespace bellows {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string job;
  std::uint32_t gpus = 0;  ///< 0: as it was
  std::uint32_t timeout = 600;
  bool no_wait = false;
  bool from_scratch = false;
  bool json = false;
};

int halt(const Options& options) {
  auto usable = SlurmClient::usable();
  SteerProcess process("halt", std::chrono::seconds(options.timeout), options.json);
  if (!usable) return process.fail({kUnreachable, usable.error().text + "; nothing was changed"});
  SlurmClient slurm;
  const JobName name = *parse_job_name(options.job);
  const std::string id = name.to_string();
  Halt sequence(process.steering(slurm), name, options.from_scratch);
  if (auto failure = sequence.run()) return process.fail(*failure);
  const SlurmJob& job = sequence.job();
  if (options.json) {
    ordered_json out = {{"job", job.id},
                        {"id", id},
                        {"pending", sequence.was_pending()},
                        {"unchanged", sequence.was_held()},
                        {"step", nullptr},
                        {"commit_s", sequence.commit_s()}};
    if (sequence.step()) out["step"] = *sequence.step();
    fmt::print("{}\n", out.dump());
  } else if (sequence.was_held()) {
    fmt::print("job {} is already halted\n", id);
  } else {
    fmt::print("job {} is halted{}; 'bellows resume {}' continues it\n", id,
               sequence.step() ? fmt::format(" at step {}", *sequence.step()) : "", id);
  }
  return kOk;
}

int resume(const Options& options) {
  auto usable = SlurmClient::usable();
  SteerProcess process("resume", std::chrono::seconds(options.timeout), options.json);
  if (!usable) return process.fail({kUnreachable, usable.error().text + "; nothing was changed"});
  SlurmClient slurm;
  Resume::Request request{*parse_job_name(options.job), std::nullopt, !options.no_wait};
  const std::string id = request.job.to_string();
  if (options.gpus > 0) request.gpus = options.gpus;
  Resume sequence(process.steering(slurm), request);
  if (auto failure = sequence.run()) return process.fail(*failure);
  const SlurmJob& job = sequence.job();
  const std::uint32_t gpus = request.gpus.value_or(sequence.from());
  if (options.json) {
    ordered_json nodes = ordered_json::array();
    for (const NodeShare& share : job.nodes)
      nodes.push_back({{"node", share.node}, {"gpus", share.gpus}});
    ordered_json out = {{"job", job.id},
                        {"id", id},
                        {"from", sequence.from()},
                        {"to", gpus},
                        {"running", sequence.waited()},
                        {"release_to_running_s", sequence.seconds()},
                        {"nodes", nodes}};
    fmt::print("{}\n", out.dump());
  } else if (sequence.waited()) {
    fmt::print("job {} runs on {}, {:.1f} s after its release\n", id, counted(job.gpus(), "GPU"),
               sequence.seconds());
  } else {
    fmt::print("job {} is released and waits for {}\n", id, counted(gpus, "GPU"));
  }
  return kOk;
}

void add_common(CommandLine& command, const std::shared_ptr<Options>& options) {
  command.add_option("JOB", options->job, "Job id, or ARRAY_TASK")
      .required()
      .check(job_name_complaint);
  command
      .add_option("--timeout", options->timeout, "Time limit for the whole operation, in seconds")
      .show_default()
      .between(1, 86400);
  command.add_flag("--json", options->json, "Print one JSON object; progress on standard error");
}

}  // namespace

void add_halt_command(CommandLine& program) {
  auto options = std::make_shared<Options>();
  CommandLine command =
      program.add_command("halt", "Stop a job at a checkpoint, and hold it until it is resumed");
  add_common(command, options);
  command.add_flag(
      "--from-scratch", options->from_scratch,
      "Halt the job even if its program has no checkpoint and will start from scratch");
  command.run([options] { return halt(*options); });
}

void add_resume_command(CommandLine& program) {
  auto options = std::make_shared<Options>();
  CommandLine command = program.add_command("resume", "Continue a halted job");
  add_common(command, options);
  command
      .add_option("--gpus", options->gpus,
                  "Continue at this size, which must be in the job's range")
      .between(1, 4096);
  command.add_flag("--no-wait", options->no_wait, "Do not wait until the job runs");
  command.run([options] { return resume(*options); });
}

}  // namespace bellows
