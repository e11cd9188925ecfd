// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/base/table.h"
#include "launcher/base/terminal.h"
#include "launcher/cli/commands.h"
#include "launcher/record/cluster_status.h"
#include "launcher/record/history.h"
#include "launcher/record/job_view.h"
#include "launcher/record/model_query.h"
#include "slurm/client.h"

namespace bellows {
namespace {

constexpr std::size_t kEventsForLast = 64;
/// Most of them are saves, which are shown as one line.
constexpr std::size_t kEventsForHistory = 4096;
constexpr std::size_t kMostEventsShown = 40;

struct StatusOptions {
  std::string job;
  std::string checkpoint_dir;
  bool cluster = false;
  bool json = false;
};

JobView view_of(const SlurmJob& job, const std::string& checkpoint_dir, std::size_t events) {
  JobView view;
  view.job = job;
  if (auto contract = contract_of(job); contract.ok()) view.contract = *contract;
  view.checkpoint_dir = checkpoint_dir;
  if (view.checkpoint_dir.empty()) {
    if (auto dir = checkpoint_dir_of(job, view.contract); dir.ok()) view.checkpoint_dir = *dir;
  }
  if (auto last = read_events(view.checkpoint_dir, job.id, events); last.ok())
    view.events = std::move(*last);
  if (job.state == SlurmState::running) view.server = ServerRecord::read(view.checkpoint_dir);
  if (view.server && !view.server->tells_of(job.id, job.restarts, wall_clock()))
    view.server.reset();
  return view;
}

nlohmann::ordered_json json_of(const JobView& view) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeShare& share : view.job.nodes)
    nodes.push_back({{"node", share.node}, {"gpus", share.gpus}});
  nlohmann::ordered_json out = {
      {"job", view.job.id},
      {"id", view.job.shown_id()},
      {"name", view.job.name},
      {"user", user_name(view.job.uid)},
      {"state", view.state()},
      {"slurm_state", slurm_state_name(view.job.state)},
      {"completing", view.job.completing},
      {"reason", view.job.reason},
      {"submitted", view.job.times.submit},
      {"waits_until", nullptr},
      {"gpus", view.job.gpus()},
      {"requested_gpus", view.job.requested_gpus()},
      {"nodes", nodes},
      {"restarts", view.job.restarts},
      {"checkpoint_dir", view.checkpoint_dir},
      {"last", view.last_words()},
  };
  if (view.job.state == SlurmState::pending && view.job.times.start > view.job.times.now)
    out["waits_until"] = view.job.times.start;
  out["loading"] = nlohmann::ordered_json::array();
  for (const NodeModels& node : view.loading)
    out["loading"].push_back(
        {{"node", node.node}, {"read_bytes", node.read_bytes}, {"bytes", node.bytes}});
  out["range"] = nullptr;
  out["step"] = nullptr;
  out["last_event"] = nullptr;
  if (view.contract) out["range"] = view.contract->gpus.to_string();
  if (view.contract) out["tenant"] = view.contract->tenant;
  if (view.contract) out["framework"] = view.contract->framework;
  if (auto step = view.step()) out["step"] = *step;
  out["parameter_server"] = nullptr;
  if (const auto& server = view.server)
    out["parameter_server"] = {{"learners", server->learners},
                               {"updates", server->updates},
                               {"updates_per_second", server->updates_per_second},
                               {"staleness", server->staleness},
                               {"most_staleness", server->most_staleness}};
  if (const JobEvent* last = view.last_event())
    out["last_event"] = nlohmann::ordered_json::parse(last->to_json());
  return out;
}

/// Slurm still names those of a job that is over, without what it held there.
bool holds_nodes(const SlurmJob& job) { return !job.nodes.empty() && !job.finished(); }

Table table_of(const std::vector<JobView>& views, bool with_last) {
  std::vector<Table::Column> columns = {{"JOB", true, 0, 0},    {"NAME", false, 14, 1},
                                        {"STATE", false, 0, 0}, {"GPUS", true, 0, 0},
                                        {"RANGE", false, 9, 3}, {"RESTARTS", true, 0, 4},
                                        {"STEP", true, 0, 2}};
  if (with_last) columns.push_back({"LAST"});
  Table table(columns);
  for (const JobView& view : views) {
    const auto gpus = holds_nodes(view.job) ? view.job.gpus() : view.job.requested_gpus();
    const auto step = view.step();
    std::vector<std::string> cells = {view.job.shown_id(),
                                      view.job.name,
                                      view.state(),
                                      std::to_string(gpus),
                                      view.contract ? view.contract->gpus.to_string() : "-",
                                      std::to_string(view.job.restarts),
                                      step ? std::to_string(*step) : "-"};
    if (with_last) cells.push_back(view.last_words());
    for (std::string& cell : cells) cell = one_line(std::move(cell));
    table.add(std::move(cells));
  }
  return table;
}

/// A further line of the text begins below the first one.
void print_below(const std::string& head, const std::string& text, std::size_t width) {
  fmt::print("{}{}\n", head, wrapped(one_line(text), width, shown_width(head)));
}

void print_one(const JobView& view, std::size_t width) {
  fmt::print("{}", table_of({view}, false).text(width));
  print_below("  ", view.last_words(), width);
  for (const NodeShare& share : holds_nodes(view.job) ? view.job.nodes : std::vector<NodeShare>())
    print_below("  ", fmt::format("node {}: {}", share.node, counted(share.gpus, "GPU")), width);
  if (view.server) print_below("  ", "parameter server: " + view.server->to_string(), width);
  print_below("  ", "checkpoints: " + view.checkpoint_dir, width);
  const std::vector<JobEvent> events = collapse_saves(view.events);
  const std::size_t left_out = events.size() - std::min(events.size(), kMostEventsShown);
  for (std::size_t i = left_out; i < events.size(); ++i) {
    const JobEvent& event = events[i];
    const auto when = fmt::localtime(static_cast<std::time_t>(event.time));
    print_below(fmt::format("  {:%F %T} {:<13} ", when, one_line(event.event)),
                fmt::format("{:<7}  {}{}", counted(event.gpus, "GPU"),
                            event.step ? fmt::format("step {}  ", *event.step) : "", event.cause),
                width);
  }
}

/// By job and task, as a person counts them.
void sort_jobs(std::vector<SlurmJob>& jobs) {
  const auto place = [](const SlurmJob& job) {
    const bool rest = !job.array.waiting.empty();
    return std::tuple(job.array.job == 0 ? job.id : job.array.job, rest, job.array.task, job.id);
  };
  std::sort(jobs.begin(), jobs.end(),
            [place](const SlurmJob& a, const SlurmJob& b) { return place(a) < place(b); });
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
    JobView& view = views.emplace_back(view_of(*job, options.checkpoint_dir, kEventsForHistory));
    // Only its own user's steps may look at the nodes.
    if (view.may_be_loading() && job->uid == getuid())
      view.loading = ask_model_progress(*job, *view.contract);
  } else {
    auto jobs = slurm.jobs();
    if (!jobs) {
      fmt::print(stderr, "bellows status: {}\n", jobs.error().text);
      return exit_status_of(jobs.error());
    }
    std::erase_if(*jobs, [](const SlurmJob& job) { return job.uid != getuid(); });
    sort_jobs(*jobs);
    for (const SlurmJob& job : *jobs) views.push_back(view_of(job, "", kEventsForLast));
  }
  if (options.json) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const JobView& view : views) out.push_back(json_of(view));
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (!options.job.empty()) {
    print_one(views.front(), terminal_width(STDOUT_FILENO));
  } else if (views.empty()) {
    fmt::print("You have no jobs that Slurm still knows.\n");
  } else {
    fmt::print("{}", table_of(views, true).text(terminal_width(STDOUT_FILENO)));
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
                  "Where the job keeps its checkpoints, if 'bellows run' was given this")
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
