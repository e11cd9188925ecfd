// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/cluster_status.h"
#include "launcher/commands.h"
#include "launcher/exit_status.h"
#include "launcher/job_view.h"

namespace bellows {
namespace {

struct StatusOptions {
  std::string job;
  std::string checkpoint_dir;
  bool cluster = false;
  bool json = false;
};

int exit_status_of(const Error& error) {
  if (error.kind == ErrorKind::unavailable) return kUnreachable;
  return error.kind == ErrorKind::denied ? kRefused : kFailed;
}

JobView view_of(const SlurmJob& job, const std::string& checkpoint_dir) {
  JobView view;
  view.job = job;
  if (auto contract = contract_of(job); contract.ok()) view.contract = *contract;
  view.checkpoint_dir = checkpoint_dir;
  if (view.checkpoint_dir.empty()) {
    if (auto dir = checkpoint_dir_of(job, view.contract); dir.ok()) view.checkpoint_dir = *dir;
  }
  if (auto events = read_events(view.checkpoint_dir, job.id, 64); events.ok())
    view.events = std::move(*events);
  return view;
}

nlohmann::ordered_json json_of(const JobView& view) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeShare& share : view.job.nodes)
    nodes.push_back({{"node", share.node}, {"gpus", share.gpus}});
  nlohmann::ordered_json out = {
      {"job", view.job.id},
      {"name", view.job.name},
      {"user", user_name(view.job.uid)},
      {"state", view.state()},
      {"slurm_state", slurm_state_name(view.job.state)},
      {"completing", view.job.completing},
      {"reason", view.job.reason},
      {"gpus", view.job.gpus()},
      {"requested_gpus", view.job.requested_gpus()},
      {"nodes", nodes},
      {"restarts", view.job.restarts},
      {"checkpoint_dir", view.checkpoint_dir},
  };
  out["range"] = nullptr;
  out["step"] = nullptr;
  out["last_event"] = nullptr;
  if (view.contract) out["range"] = view.contract->gpus.to_string();
  if (view.contract) out["tenant"] = view.contract->tenant;
  if (view.contract) out["framework"] = view.contract->framework;
  if (auto step = view.step()) out["step"] = *step;
  if (const JobEvent* last = view.last_event())
    out["last_event"] = nlohmann::ordered_json::parse(last->to_json());
  return out;
}

std::string last_words(const JobView& view) {
  const JobEvent* last = view.last_event();
  if (view.job.state == SlurmState::pending && !view.job.reason.empty())
    return "waits: " + view.job.reason;
  if (!last) return view.contract ? "-" : "not a Bellows job";
  auto when = fmt::localtime(static_cast<std::time_t>(last->time));
  return harmless(fmt::format("{:%H:%M:%S} {}{}{}", when, last->event,
                              last->cause.empty() ? "" : ": ", last->cause));
}

void print_table(const std::vector<JobView>& views) {
  fmt::print("{:>8} {:<14} {:<13} {:>5} {:<9} {:>8} {:>9}  {}\n", "JOB", "NAME", "STATE", "GPUS",
             "RANGE", "RESTARTS", "STEP", "LAST");
  for (const JobView& view : views) {
    auto gpus = view.job.nodes.empty() ? view.job.requested_gpus() : view.job.gpus();
    auto step = view.step();
    fmt::print("{:>8} {:<14.14} {:<13} {:>5} {:<9} {:>8} {:>9}  {}\n", view.job.shown_id(),
               harmless(view.job.name), harmless(view.state()), gpus,
               view.contract ? view.contract->gpus.to_string() : "-", view.job.restarts,
               step ? std::to_string(*step) : "-", last_words(view));
  }
}

void print_one(const JobView& view) {
  print_table({view});
  for (const NodeShare& share : view.job.nodes)
    fmt::print("  node {}: {} GPUs\n", share.node, share.gpus);
  fmt::print("  checkpoints: {}\n", harmless(view.checkpoint_dir));
  for (const JobEvent& event : view.events) {
    auto when = fmt::localtime(static_cast<std::time_t>(event.time));
    fmt::print("  {:%F %T} {:<13} {:>3} GPUs  {}{}\n", when, harmless(event.event), event.gpus,
               event.step ? fmt::format("step {}  ", *event.step) : "", harmless(event.cause));
  }
}

int show(const StatusOptions& options) {
  if (Status usable = SlurmClient::usable(); !usable) {
    fmt::print(stderr, "bellows status: {}\n", usable.error().text);
    return exit_status_of(usable.error());
  }
  SlurmClient slurm;
  std::vector<JobView> views;
  if (!options.job.empty()) {
    auto job = slurm.job(*parse_job_name(options.job));
    if (!job) {
      fmt::print(stderr, "bellows status: {}\n", job.error().text);
      return exit_status_of(job.error());
    }
    views.push_back(view_of(*job, options.checkpoint_dir));
  } else {
    auto jobs = slurm.jobs();
    if (!jobs) {
      fmt::print(stderr, "bellows status: {}\n", jobs.error().text);
      return exit_status_of(jobs.error());
    }
    for (const SlurmJob& job : *jobs)
      if (job.uid == getuid()) views.push_back(view_of(job, ""));
  }
  if (options.json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const JobView& view : views) out.push_back(json_of(view));
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (!options.job.empty()) {
    print_one(views.front());
  } else {
    print_table(views);
  }
  return kOk;
}

}  // namespace

void add_status_command(CommandLine& program) {
  auto options = std::make_shared<StatusOptions>();
  CommandLine command =
      program.add_command("status", "Show your jobs, or one job with its history");
  command
      .add_option("JOB", options->job,
                  "Job id, or ARRAY_TASK; without it, all your jobs that Slurm still knows")
      .check(job_name_complaint);
  command
      .add_option("--checkpoint-dir", options->checkpoint_dir,
                  "Where the job keeps its checkpoints, if 'bellows run' was told so")
      .needs("JOB");
  command.add_flag("--json", options->json, "Print JSON instead of a table");
  command
      .add_flag("--cluster", options->cluster,
                "Show the policy that slurmctld has in force instead")
      .excludes("JOB");
  command.run(
      [options] { return options->cluster ? show_cluster_status(options->json) : show(*options); });
}

}  // namespace bellows
