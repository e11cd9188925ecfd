// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/text.h"
#include "elastic/simulate/picture.h"
#include "elastic/simulate/report.h"
#include "elastic/simulate/schedulers.h"
#include "elastic/simulate/workload.h"
#include "launcher/base/exit_status.h"
#include "launcher/cli/commands.h"

namespace bellows {
namespace {

struct SimulateOptions {
  std::vector<std::string> workloads;
  std::vector<std::string> schedulers;
  std::string models;
  std::string terms;
  std::string picture;
  std::string restart_s = "30";
  std::string round_s = "60";
  std::string until_s;
  std::uint32_t nodes = 16;
  std::uint32_t gpus_per_node = 4;
  std::uint32_t seed = 1;
  bool json = false;
};

int fail(const Error& error) {
  fmt::print(stderr, "bellows simulate: {}\n", error.text);
  return kFailed;
}

std::optional<double> seconds(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

std::string seconds_complaint(const std::string& text) {
  return seconds(text) ? "" : "must be a number of seconds";
}

std::string round_complaint(const std::string& text) {
  const auto value = seconds(text);
  return value && *value >= 1 ? "" : "must be a number of seconds, at least 1";
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
  std::vector<Report> reports;
  std::string picture;  ///< of the only run, if one was asked for
};

struct Setting {
  ClusterShape shape;
  SimulationTerms terms;
};

Setting setting_of(const SimulateOptions& options) {
  Setting setting{{options.nodes, options.gpus_per_node}, {}};
  setting.terms.restart_s = *seconds(options.restart_s);
  setting.terms.round_s = *seconds(options.round_s);
  if (!options.until_s.empty()) setting.terms.until_s = *seconds(options.until_s);
  return setting;
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

void run_one(const SimulateOptions& options, const SchedulerKind& kind, const std::string& workload,
             const std::vector<Submission>& submissions, Runs& runs) {
  Setting setting = setting_of(options);
  setting.terms.at_events = kind.at_events;
  const auto scheduler = make_scheduler(kind, setting.shape, setting.terms, options.seed);
  const RunLabel label{std::string(kind.name), workload};
  Progress progress(fmt::format("{}, {}", label.scheduler, one_line(workload, 40)),
                    submissions.size());
  const Outcome outcome =
      simulate(submissions, *scheduler, setting.terms,
               [&progress](double now, std::size_t done) { progress.show(now, done); });
  runs.reports.push_back(
      make_report(label, outcome, setting.shape, setting.terms, progress.seconds()));
  if (!options.picture.empty())
    runs.picture = gpu_picture(outcome, setting.shape,
                               fmt::format("{} with {}", label.workload, label.scheduler));
}

Result<Runs> run_all(const SimulateOptions& options) {
  const auto applications = read_applications(options.models, options.terms);
  if (!applications) return applications.error();
  std::vector<SchedulerKind> kinds;
  for (const std::string& name : options.schedulers) {
    const auto kind = scheduler_kind(name);
    if (!kind) return kind.error();
    kinds.push_back(*kind);
  }
  if (kinds.empty()) kinds = scheduler_kinds();
  Runs runs;
  for (const std::string& path : options.workloads) {
    const auto submissions = read_workload(path, *applications);
    if (!submissions) return submissions.error();
    if (auto status = fits(*submissions, setting_of(options).shape); !status) return status.error();
    for (const SchedulerKind& kind : kinds)
      run_one(options, kind, std::filesystem::path(path).stem().string(), *submissions, runs);
  }
  return runs;
}

Status write_picture(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (file) return {};
  return Error{ErrorKind::io, fmt::format("can't write the picture to {}", path)};
}

int run_simulation(const SimulateOptions& options) {
  if (!options.picture.empty() && (options.workloads.size() != 1 || options.schedulers.size() != 1))
    throw WrongUsage{"--picture shows one workload with one --scheduler"};
  const auto runs = run_all(options);
  if (!runs) return fail(runs.error());
  if (options.json)
    fmt::print("{}\n", report_json(runs->reports).dump(2));
  else
    fmt::print("{}", report_table(runs->reports));
  if (options.picture.empty()) return kOk;
  const Status written = write_picture(options.picture, runs->picture);
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
  command.add_option("--terms", options->terms, "Table of what contracts allow each program");
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
  command.add_option("--restart", options->restart_s, "Seconds that a change of GPUs costs a job")
      .check(seconds_complaint)
      .show_default();
  command.add_option("--round", options->round_s, "Seconds between a scheduler's decisions")
      .check(round_complaint)
      .show_default();
  command.add_option("--until", options->until_s, "End after so many seconds, if jobs are left")
      .check(seconds_complaint);
  command.add_option("--seed", options->seed, "For schedulers that search by chance")
      .show_default();
  command.add_option("--picture", options->picture, "Write the GPUs by job over time, as HTML");
  command.add_flag("--json", options->json, "Print JSON instead of a table");
  command.run([options] { return run_simulation(*options); });
}

}  // namespace bellows
