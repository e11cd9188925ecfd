// SPDX-License-Identifier: Apache-2.0
#include "launcher/steer/resize.h"

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/contract.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/steer/steer_process.h"
#include "slurm/client.h"

namespace bellows {
namespace {

struct Options {
  ResizeRequest request;
  std::string job;
  std::uint64_t batch = 0;  ///< 0: none was given
  std::uint32_t timeout = 600;
  bool json = false;
};

void print_json(const ResizeReport& report, const std::string& id) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeShare& share : report.job.nodes)
    nodes.push_back({{"node", share.node}, {"gpus", share.gpus}});
  nlohmann::ordered_json out = {
      {"job", report.job.id},
      {"id", id},
      {"from", report.from},
      {"to", report.to},
      {"pending", report.was_pending},
      {"unchanged", report.unchanged},
      {"step", nullptr},
      {"batch", nullptr},
      {"commit_s", report.commit_s},
      {"requeue_to_running_s", report.requeue_s},
      {"restarts", report.job.restarts},
      {"nodes", nodes},
  };
  if (report.step) out["step"] = *report.step;
  if (report.batch) out["batch"] = *report.batch;
  fmt::print("{}\n", out.dump());
}

void print_summary(const ResizeReport& report, const std::string& id) {
  const std::string batch = report.batch ? fmt::format(", batch {}", *report.batch) : "";
  if (report.unchanged)
    fmt::print("job {} already has {}\n", id, counted(report.to, "GPU"));
  else if (report.was_pending)
    fmt::print("job {} waits, now for {} instead of {}\n", id, counted(report.to, "GPU"),
               report.from);
  else
    fmt::print("job {}: {} -> {}{}; commit {:.1f} s, requeue to running {:.1f} s\n", id,
               report.from, counted(report.to, "GPU"), batch, report.commit_s, report.requeue_s);
}

int resize(Options options) {
  options.request.job = *parse_job_name(options.job);
  if (options.batch > 0) options.request.batch = options.batch;
  auto usable = SlurmClient::usable();
  SteerProcess process("resize", std::chrono::seconds(options.timeout), options.json);
  if (!usable) return process.fail({kUnreachable, usable.error().text + "; nothing was changed"});
  SlurmClient slurm;
  Resize sequence(process.steering(slurm), options.request);
  if (auto failure = sequence.run()) return process.fail(*failure);
  const std::string id = options.request.job.to_string();
  options.json ? print_json(sequence.report(), id) : print_summary(sequence.report(), id);
  return kOk;
}

}  // namespace

std::string job_name_complaint(const std::string& name) {
  return parse_job_name(name) ? "" : "'" + name + "' is not a job id, such as 123 or 123_4";
}

void add_resize_command(CommandLine& program) {
  auto options = std::make_shared<Options>();
  CommandLine command = program.add_command("resize", "Move a job to another number of GPUs");
  command.add_option("JOB", options->job, "Job id, or ARRAY_TASK")
      .required()
      .check(job_name_complaint);
  command
      .add_option("GPUS", options->request.gpus, "Number of GPUs, which must be in the job's range")
      .required()
      .between(1, 4096);
  command
      .add_option("--timeout", options->timeout, "Time limit for the whole operation, in seconds")
      .show_default()
      .between(1, 86400);
  command
      .add_option("--batch", options->batch,
                  "Also set the batch, the samples in a step, which must be in the job's range")
      .between(1, BatchRange::kMost);
  command.add_flag("--from-scratch", options->request.from_scratch,
                   "Resize even if the program has no checkpoint, so that its work is lost");
  command.add_flag("--json", options->json, "Print one JSON object; progress on standard error");
  command.run([options] { return resize(*options); });
}

}  // namespace bellows
