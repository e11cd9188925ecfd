// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/text.h"
#include "elastic/simulate/packing.h"

namespace bellows {
namespace {

constexpr double kHour = 3600;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Gives each job the same place for ever.
class SamePlace final : public Scheduler {
 public:
  explicit SamePlace(NodeGpus place) : place_(std::move(place)) {}
  BatchRule batch_rule() const override { return BatchRule::adapted; }
  std::vector<NodeGpus> decide(double, const std::vector<const SimulatedJob*>& jobs) override {
    return std::vector<NodeGpus>(jobs.size(), place_);
  }

 private:
  NodeGpus place_;
};

// How long jobs take alone. Jobs of one application with as many GPUs and as much to do take as
// long, and many are.
class AloneTimes {
 public:
  AloneTimes(const ClusterShape& shape, double restart_s) : shape_(shape), restart_s_(restart_s) {}

  double seconds(const SimulatedJob& job, std::uint32_t gpus) {
    const Submission& submission = job.submission();
    const auto [entry, is_new] =
        known_.try_emplace({submission.application, gpus, submission.work});
    if (is_new) entry->second = run(*submission.application, gpus, submission.work);
    return entry->second;
  }

 private:
  double run(const Application& application, std::uint32_t gpus, double work) const {
    // Its GPUs never change, so that it matters only that it gets them at once.
    constexpr double kDay = 86400;
    const SimulationTerms terms{.restart_s = restart_s_, .round_s = kDay, .at_events = true};
    const Submission submission{.name = {},
                                .submit_s = 0,
                                .application = &application,
                                .gpus = gpus,
                                .batch = application.limits().submitted,
                                .work = work};
    SamePlace scheduler(FreeGpus(shape_).take_packed(gpus));
    return simulate({submission}, scheduler, terms).end_s;
  }

  ClusterShape shape_;
  double restart_s_;
  std::map<std::tuple<const Application*, std::uint32_t, double>, double> known_;
};

double finish_or(const SimulatedJob& job, double end_s) {
  return job.is_done() ? job.finish_s() : end_s;
}

// The mean number of jobs that were in the system while this one was.
double mean_jobs(const Outcome& outcome, const SimulatedJob& of) {
  const double from_s = of.submission().submit_s;
  const double to_s = of.finish_s();
  double job_seconds = 0;
  for (const SimulatedJob& job : outcome.jobs)
    job_seconds += std::max(0.0, std::min(to_s, finish_or(job, outcome.end_s)) -
                                     std::max(from_s, job.submission().submit_s));
  return to_s > from_s ? std::max(1.0, job_seconds / (to_s - from_s)) : 1.0;
}

std::uint32_t fair_share(const Outcome& outcome, const SimulatedJob& job,
                         const ClusterShape& shape) {
  const auto share = static_cast<std::uint32_t>(shape.gpus() / mean_jobs(outcome, job));
  return std::max(1U, std::min(share, job.application().largest_gpus()));
}

double mean_of(const std::vector<double>& values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(const std::vector<double>& sorted) {
  if (sorted.empty()) return kNaN;
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

// Whole numbers, because 0.99 times a number may come out above what it is.
double percentile_of(const std::vector<double>& sorted, std::size_t percent) {
  if (sorted.empty()) return kNaN;
  return sorted[(percent * sorted.size() + 99) / 100 - 1];
}

void sum_up_jobs(Report& report) {
  std::vector<double> completions, fairness;
  for (const JobReport& job : report.of_jobs) {
    report.restarts_per_job += job.restarts;
    if (std::isnan(job.completion_s)) continue;
    completions.push_back(job.completion_s);
    fairness.push_back(job.fairness);
  }
  std::sort(completions.begin(), completions.end());
  report.jobs = report.of_jobs.size();
  report.jobs_done = completions.size();
  report.mean_completion_s = mean_of(completions);
  report.median_completion_s = median_of(completions);
  report.p99_completion_s = percentile_of(completions, 99);
  report.mean_fairness = mean_of(fairness);
  report.largest_fairness =
      fairness.empty() ? kNaN : *std::max_element(fairness.begin(), fairness.end());
  if (report.jobs > 0) report.restarts_per_job /= static_cast<double>(report.jobs);
}

using Cells = std::vector<std::string>;

struct Column {
  std::string_view title;
  int decimals;
  double (*of)(const Report&);
  bool if_varied = false;  ///< left out if it says the same in all rows
  /// A row of several reports has the sum of `of` over the sum of this.
  double (*over)(const Report&) = [](const Report&) { return 1.0; };
};

constexpr Column kColumns[] = {
    {"load", 2, [](const Report& r) { return r.setting.load; }, true},
    {"restart (s)", 1, [](const Report& r) { return r.setting.restart_s; }, true},
    {"round (s)", 1, [](const Report& r) { return r.setting.round_s; }, true},
    {"jobs", 0, [](const Report& r) { return static_cast<double>(r.jobs); }},
    {"done", 0, [](const Report& r) { return static_cast<double>(r.jobs_done); }},
    {"mean (h)", 2, [](const Report& r) { return r.mean_completion_s / kHour; }},
    {"bound (h)", 2, [](const Report& r) { return r.least_mean_s / kHour; }, true},
    {"over baseline", 3, [](const Report& r) { return r.mean_completion_s; }, true,
     [](const Report& r) { return r.baseline_mean_s; }},
    {"median (h)", 2, [](const Report& r) { return r.median_completion_s / kHour; }},
    {"p99 (h)", 2, [](const Report& r) { return r.p99_completion_s / kHour; }},
    {"GPU-hours", 1, [](const Report& r) { return r.gpu_hours; }},
    {"restarts/job", 2, [](const Report& r) { return r.restarts_per_job; }},
    {"fairness max", 2, [](const Report& r) { return r.largest_fairness; }},
    {"fairness mean", 2, [](const Report& r) { return r.mean_fairness; }},
    {"end (h)", 2, [](const Report& r) { return r.end_s / kHour; }},
    {"decisions", 0, [](const Report& r) { return static_cast<double>(r.decisions); }},
    {"took (s)", 2, [](const Report& r) { return r.wall_s; }}};

constexpr std::size_t kNames = 2;  ///< columns of text before those

std::string number_cell(double value, int decimals) {
  if (std::isnan(value)) return "-";
  // The mean of whole numbers must not look whole: 159.88 of 160 jobs are not all.
  if (decimals == 0 && value != std::round(value)) decimals = 2;
  return fmt::format("{:.{}f}", value, decimals);
}

// The mean of each column over reports of one scheduler, of which there may be just one.
Cells row_of(const std::vector<const Report*>& reports) {
  Cells cells = {one_line(reports.front()->scheduler),
                 reports.size() == 1 ? one_line(reports.front()->workload)
                                     : fmt::format("mean of {}", reports.size())};
  for (const Column& column : kColumns) {
    double sum = 0, over = 0;
    for (const Report* report : reports) {
      sum += column.of(*report);
      over += column.over(*report);
    }
    cells.push_back(number_cell(sum / over, column.decimals));
  }
  return cells;
}

void leave_out_what_is_the_same(std::vector<Cells>& rows) {
  for (std::size_t i = std::size(kColumns); i-- > 0;) {
    const std::size_t at = kNames + i;
    const auto is_first = [&](const Cells& row) { return row[at] == rows[1][at]; };
    if (!kColumns[i].if_varied || !std::all_of(rows.begin() + 1, rows.end(), is_first)) continue;
    for (Cells& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

// In characters of UTF-8, which begin with all but the bytes 10xxxxxx.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string lay_out_rows(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - width_of(row[i]), ' ');
      line += (i > 0 ? "  " : "") + (i < kNames ? row[i] + blanks : blanks + row[i]);
    }
    text += line + '\n';
  }
  return text;
}

// The writer of JSON throws at bytes that are not UTF-8, unless told to replace them.
nlohmann::ordered_json json_text(const std::string& text) {
  using Json = nlohmann::ordered_json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

nlohmann::ordered_json json_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json json_of(const JobReport& job) {
  return {{"name", json_text(job.name)},           {"application", json_text(job.application)},
          {"submit_s", json_number(job.submit_s)}, {"completion_s", json_number(job.completion_s)},
          {"fairness", json_number(job.fairness)}, {"restarts", job.restarts}};
}

}  // namespace

Report make_report(const RunLabel& label, const Outcome& outcome, const ClusterShape& shape,
                   const SimulationTerms& terms, double wall_s) {
  Report report;
  report.scheduler = label.scheduler;
  report.workload = label.workload;
  report.setting = {label.load, terms.restart_s, terms.round_s};
  report.end_s = outcome.end_s;
  report.decisions = outcome.decisions;
  report.wall_s = wall_s;
  for (const HeldSpan& span : outcome.spans)
    report.gpu_hours += span.gpus * (span.to_s - span.from_s) / kHour;
  AloneTimes alone(shape, terms.restart_s);
  for (const SimulatedJob& job : outcome.jobs) {
    const Submission& submission = job.submission();
    JobReport of_job{submission.name, job.application().name(), submission.submit_s, kNaN, kNaN,
                     job.restarts()};
    if (job.is_done()) {
      of_job.completion_s = job.finish_s() - submission.submit_s;
      of_job.fairness = of_job.completion_s / alone.seconds(job, fair_share(outcome, job, shape));
    }
    report.of_jobs.push_back(std::move(of_job));
  }
  sum_up_jobs(report);
  return report;
}

void compare_with(const Baseline& baseline, std::vector<Report>& reports) {
  for (Report& report : reports) {
    RunSetting setting = report.setting;
    setting.restart_s = baseline.restart_s;
    const auto found = std::find_if(reports.begin(), reports.end(), [&](const Report& other) {
      return other.scheduler == baseline.scheduler && other.workload == report.workload &&
             other.setting == setting;
    });
    report.baseline_mean_s = found == reports.end() ? kNaN : found->mean_completion_s;
  }
}

std::string report_table(const std::vector<Report>& reports) {
  std::vector<Cells> rows = {{"scheduler", "workload"}};
  for (const Column& column : kColumns) rows.front().emplace_back(column.title);
  using Group = std::pair<std::string, RunSetting>;
  std::vector<Group> shown;
  for (const Report& first : reports) {
    const Group group{first.scheduler, first.setting};
    if (std::find(shown.begin(), shown.end(), group) != shown.end()) continue;
    shown.push_back(group);
    std::vector<const Report*> of_group;
    for (const Report& report : reports)
      if (Group{report.scheduler, report.setting} == group) of_group.push_back(&report);
    for (const Report* report : of_group) rows.push_back(row_of({report}));
    if (of_group.size() > 1) rows.push_back(row_of(of_group));
  }
  leave_out_what_is_the_same(rows);
  return lay_out_rows(rows);
}

nlohmann::ordered_json report_json(const std::vector<Report>& reports) {
  auto all = nlohmann::ordered_json::array();
  for (const Report& report : reports) {
    auto jobs = nlohmann::ordered_json::array();
    for (const JobReport& job : report.of_jobs) jobs.push_back(json_of(job));
    all.push_back({{"scheduler", json_text(report.scheduler)},
                   {"workload", json_text(report.workload)},
                   {"load", json_number(report.setting.load)},
                   {"restart_s", json_number(report.setting.restart_s)},
                   {"round_s", json_number(report.setting.round_s)},
                   {"jobs", report.jobs},
                   {"jobs_done", report.jobs_done},
                   {"mean_completion_s", json_number(report.mean_completion_s)},
                   {"least_mean_s", json_number(report.least_mean_s)},
                   {"median_completion_s", json_number(report.median_completion_s)},
                   {"p99_completion_s", json_number(report.p99_completion_s)},
                   {"gpu_hours", json_number(report.gpu_hours)},
                   {"restarts_per_job", json_number(report.restarts_per_job)},
                   {"largest_fairness", json_number(report.largest_fairness)},
                   {"mean_fairness", json_number(report.mean_fairness)},
                   {"end_s", json_number(report.end_s)},
                   {"decisions", report.decisions},
                   {"baseline_mean_s", json_number(report.baseline_mean_s)},
                   {"wall_s", json_number(report.wall_s)},
                   {"each_job", std::move(jobs)}});
  }
  return all;
}

}  // namespace bellows
