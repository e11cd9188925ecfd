// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "elastic/simulate/accounting.h"
#include "elastic/simulate/bound.h"
#include "elastic/simulate/picture.h"
#include "elastic/simulate/report.h"
#include "elastic/simulate/schedulers.h"
#include "elastic/simulate/sweep.h"
#include "elastic/simulate/workload.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"
#include "launcher/elastic/plan_terms_file.h"

namespace bellows {
namespace {

struct SimulateOptions {
  std::vector<std::string> workloads;
  std::vector<std::string> schedulers;
  std::string models;
  std::string terms;
  std::string sacct;
  std::string picture;
  std::string curves;
  std::string baseline;
  std::string loads = "1";
  std::string restarts_s = "30";
  std::string rounds_s = "60";
  std::string until_s;
  std::string start_s;
  std::string policy;
  std::uint32_t nodes = 16;
  std::uint32_t gpus_per_node = 4;
  std::uint32_t seed = 1;
  bool json = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "bellows simulate: {}\n", error.text);
  return kFailed;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

/// Of a text that list_complaint has nothing against.
std::vector<double> numbers(const std::string& list) {
  std::vector<double> values;
  for (const std::string_view text : split(list, ',')) values.push_back(*number(text));
  return values;
}

/// For an option that takes numbers of at least `least`, with commas between them.
auto list_complaint(double least, double most = std::numeric_limits<double>::max()) {
  return [least, most](const std::string& list) -> std::string {
    for (const std::string_view text : split(list, ',')) {
      const auto value = number(text);
      if (!value || *value < least || *value > most)
        return fmt::format("must be a number of at least {}{}, or several with commas between them",
                           least, most < 1e300 ? fmt::format(" and at most {}", most) : "");
    }
    return "";
  };
}

std::string seconds_complaint(const std::string& text) {
  const auto value = number(text);
  return value && *value >= 0 ? "" : "must be a number of seconds";
}

std::string baseline_complaint(const std::string& text) {
  const auto parts = split(text, '@');
  const auto restart_s = parts.size() == 2 ? number(parts[1]) : 0;
  return parts.size() <= 2 && restart_s && *restart_s >= 0
             ? ""
             : "must be a scheduler, or one and its --restart, as in pollux@30";
}

/// Tells a person how far a run is, once it has lasted for a second.
class Progress {
 public:
  Progress(std::string what, std::size_t jobs) : what_(std::move(what)), jobs_(jobs) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

  void show(double simulated_s, std::size_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r\033[K{}: {} of {} jobs done, {:.1f} simulated hours", what_, done, jobs_,
               simulated_s / 3600);
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::string what_;
  std::size_t jobs_;
  bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = begin_;
};

struct Runs {
  LeastCompletion bound;
  std::vector<Report> reports;
  std::string picture = "";  ///< of the only run, if one was asked for
};

/// What is the same for all runs of a command.
struct Plan {
  ClusterShape shape;
  Sweep sweep;
  double until_s = SimulatedJob::kNever;
  std::optional<double> start_s = {};
  std::uint32_t seed = 1;
  bool draws = false;
  PlanTerms terms = {};  ///< of bellowsd
};

Plan plan_of(const SimulateOptions& options) {
  Plan plan{
      .shape = {options.nodes, options.gpus_per_node},
      .sweep = {numbers(options.loads), numbers(options.restarts_s), numbers(options.rounds_s)},
      .seed = options.seed,
      .draws = !options.picture.empty()};
  if (!options.until_s.empty()) plan.until_s = *number(options.until_s);
  if (!options.start_s.empty()) plan.start_s = *number(options.start_s);
  return plan;
}

Baseline baseline_of(const SimulateOptions& options, const Sweep& sweep) {
  const auto parts = split(options.baseline, '@');
  return {std::string(parts[0]), parts.size() > 1 ? *number(parts[1]) : sweep.restarts_s.front()};
}

Status fits(const std::vector<Submission>& submissions, const ClusterShape& shape) {
  for (const Submission& submission : submissions)
    if (submission.gpus > shape.gpus())
      return Error{ErrorKind::invalid,
                   fmt::format("{} asks for {}, and the cluster has {}; give it more --nodes",
                               one_line(submission.name, 40), counted(submission.gpus, "GPU"),
                               shape.gpus())};
  return {};
}

void run_one(const Plan& plan, const RunSetting& setting, const SchedulerKind& kind,
             const std::string& workload, const std::vector<Submission>& workload_jobs,
             Runs& runs) {
  const SimulationTerms terms{.restart_s = setting.restart_s,
                              .start_s = plan.start_s,
                              .round_s = setting.round_s,
                              .at_events = kind.at_events,
                              .until_s = plan.until_s};
  const auto scheduler = make_scheduler(kind, plan.shape, terms, plan.seed, plan.terms);
  const RunLabel label{std::string(kind.name), workload, setting.load};
  const auto submissions =
      with_batches(at_load(workload_jobs, setting.load, plan.seed), kind.batch, plan.seed);
  Progress progress(fmt::format("{}, {}", label.scheduler, one_line(workload, 40)),
                    submissions.size());
  const Outcome outcome =
      simulate(submissions, *scheduler, terms,
               [&progress](double now, std::size_t done) { progress.show(now, done); });
  runs.reports.push_back(make_report(label, outcome, plan.shape, terms, progress.seconds()));
  Report& report = runs.reports.back();
  // Of jobs that are done before the end, which are the short ones, the mean is no mean of all.
  if (report.jobs_done == report.jobs)
    report.least_mean_s = runs.bound.mean_s(submissions, setting.restart_s);
  if (plan.draws)
    runs.picture = gpu_picture(outcome, plan.shape,
                               fmt::format("{} with {}", label.workload, label.scheduler));
}

Result<std::vector<SchedulerKind>> chosen_kinds(const SimulateOptions& options) {
  if (options.schedulers.empty()) return scheduler_kinds();
  std::vector<SchedulerKind> kinds;
  for (const std::string& name : options.schedulers) {
    const auto kind = scheduler_kind(name);
    if (!kind) return kind.error();
    kinds.push_back(*kind);
  }
  return kinds;
}

// Before the runs, which may take long.
Status check_baseline(const SimulateOptions& options, const std::vector<SchedulerKind>& kinds,
                      const Sweep& sweep) {
  if (options.baseline.empty()) return {};
  const Baseline baseline = baseline_of(options, sweep);
  const auto& restarts_s = sweep.restarts_s;
  const bool runs =
      std::any_of(kinds.begin(), kinds.end(),
                  [&](const SchedulerKind& kind) { return kind.name == baseline.scheduler; }) &&
      std::find(restarts_s.begin(), restarts_s.end(), baseline.restart_s) != restarts_s.end();
  if (runs) return {};
  return Error{ErrorKind::invalid,
               fmt::format("the baseline {} is not among the runs; name its scheduler with "
                           "--scheduler and its restart with --restart",
                           one_line(options.baseline, 40))};
}

Result<std::vector<Submission>> read_jobs(const SimulateOptions& options, const std::string& path,
                                          const Applications& applications,
                                          const ClusterShape& shape) {
  if (options.sacct.empty()) return read_workload(path, applications);
  auto workload = read_accounting(path, options.sacct, applications, shape);
  if (!workload) return workload.error();
  if (workload->left_out > 0)
    fmt::print(stderr,
               "bellows simulate: {} of {} left out: no GPU, no time, or the application -\n",
               counted(workload->left_out, "job"), one_line(path, 80));
  return std::move(workload->submissions);
}

Result<Runs> run_all(const SimulateOptions& options) {
  const auto applications = read_applications(options.models, options.terms);
  if (!applications) return applications.error();
  const auto kinds = chosen_kinds(options);
  if (!kinds) return kinds.error();
  Plan plan = plan_of(options);
  if (!options.policy.empty()) {
    auto terms = read_plan_terms(options.policy);
    if (!terms) return terms.error();
    plan.terms = *std::move(terms);
  }
  if (auto status = check_baseline(options, *kinds, plan.sweep); !status) return status.error();
  Runs runs{LeastCompletion(plan.shape), {}};
  for (const std::string& path : options.workloads) {
    const auto submissions = read_jobs(options, path, *applications, plan.shape);
    if (!submissions) return submissions.error();
    if (auto status = fits(*submissions, plan.shape); !status) return status.error();
    const std::string name = std::filesystem::path(path).stem().string();
    for (const SchedulerKind& kind : *kinds)
      for (const RunSetting& setting : plan.sweep.settings())
        run_one(plan, setting, kind, name, *submissions, runs);
  }
  if (!options.baseline.empty()) compare_with(baseline_of(options, plan.sweep), runs.reports);
  return runs;
}

Status write_picture(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (file) return {};
  return Error{ErrorKind::io, fmt::format("can't write the picture to {}", path)};
}

void check_pictures(const SimulateOptions& options, const Sweep& sweep) {
  const std::size_t settings = sweep.settings().size();
  if (!options.picture.empty() &&
      (options.workloads.size() != 1 || options.schedulers.size() != 1 || settings != 1))
    throw WrongUsage{"--picture shows one workload with one --scheduler and setting"};
  if (!options.curves.empty() && settings == 1)
    throw WrongUsage{"--curves needs several values of --load, --restart or --round"};
}

int run_simulation(const SimulateOptions& options) {
  check_pictures(options, plan_of(options).sweep);
  const auto runs = run_all(options);
  if (!runs) return fail(runs.error());
  if (options.json)
    fmt::print("{}\n", report_json(runs->reports).dump(2));
  else
    fmt::print("{}", report_table(runs->reports));
  Status written;
  if (!options.picture.empty()) written = write_picture(options.picture, runs->picture);
  if (written && !options.curves.empty())
    written = write_picture(options.curves, curves_picture("Mean completion by scheduler",
                                                           sweep_charts(runs->reports)));
  return written ? kOk : fail(written.error());
}

}  // namespace

void add_simulate_command(CommandLine& program) {
  auto options = std::make_shared<SimulateOptions>();
  CommandLine command = program.add_command(
      "simulate", "Let schedulers divide a cluster's GPUs among the jobs of a workload");
  command.add_option("WORKLOAD", options->workloads, "Tables of jobs, as CSV")
      .required()
      .values(1, -1);
  command.add_option("--models", options->models, "Folder with what was measured of each program")
      .required();
  command.add_option("--policy", options->policy,
                     "A bellows.yaml, for what it says of bellowsd and tenants");
  command.add_option("--terms", options->terms, "Table of what contracts allow each program");
  command.add_option("--sacct", options->sacct,
                     "The workloads are of sacct; this table names each job's application");
  std::string names;
  for (const SchedulerKind& kind : scheduler_kinds())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  command.add_option("--scheduler", options->schedulers, "Of " + names + "; default all")
      .one_value_each();
  command.add_option("--nodes", options->nodes, "Nodes of the cluster")
      .between(1, 1024)
      .show_default();
  command.add_option("--gpus-per-node", options->gpus_per_node, "GPUs of each node")
      .between(1, 9)
      .show_default();
  command
      .add_option("--load", options->loads,
                  "Times the workload's jobs in the same time; 1,2 compares two")
      .check(list_complaint(0.01, 100))
      .show_default();
  command
      .add_option("--restart", options->restarts_s,
                  "Seconds that a change of GPUs costs a job; likewise")
      .check(list_complaint(0))
      .show_default();
  command
      .add_option("--start", options->start_s,
                  "Seconds that a job's start on free GPUs costs it; default that of --restart")
      .check(seconds_complaint);
  command
      .add_option("--round", options->rounds_s, "Seconds between a scheduler's decisions; likewise")
      .check(list_complaint(1))
      .show_default();
  command
      .add_option("--baseline", options->baseline,
                  "Compare with this scheduler, as in pollux, or pollux@30 for its --restart")
      .check(baseline_complaint);
  command.add_option("--until", options->until_s, "End after so many seconds, if jobs are left")
      .check(seconds_complaint);
  command.add_option("--seed", options->seed, "For what is drawn by chance").show_default();
  command.add_option("--picture", options->picture, "Write the GPUs by job over time, as HTML");
  command.add_option("--curves", options->curves,
                     "Write completion by load, restart and round, as HTML");
  command.add_flag("--json", options->json, "Print JSON instead of a table");
  command.run([options] { return run_simulation(*options); });
}

}  // namespace bellows
