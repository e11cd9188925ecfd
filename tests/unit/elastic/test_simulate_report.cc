// SPDX-License-Identifier: Apache-2.0
// What is said of a simulated run: the numbers, the table, the JSON text and the pictures.
#include <criterion/criterion.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastic/simulate/picture.h"
#include "elastic/simulate/report.h"
#include "tests/unit/support/scratch_dir.h"

using namespace bellows;

TestSuite(simulate_report, .timeout = 20);
TestSuite(simulate_picture, .timeout = 20);

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr ClusterShape kShape{.nodes = 2, .gpus_per_node = 2};
constexpr char kHostile[] = "<script>&'\"</script>";
constexpr char kHarmless[] = "&lt;script&gt;&amp;&#39;&quot;&lt;/script&gt;";

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// 100 steps of 100 samples, in which N GPUs take 1/N s: alone, N GPUs need 100/N s.
Application linear(const ScratchDir& scratch, const std::string& name,
                   std::uint32_t largest_gpus = UINT32_MAX) {
  const auto folder = std::filesystem::path(scratch.path()) / name;
  std::filesystem::create_directory(folder);
  write(folder / "placements.csv",
        "placement,local_bsz,step_time,sync_time\n"
        "1,25,0.25,0\n1,100,1,0\n2,25,0.25,0\n2,50,0.5,0\n22,25,0.25,0\n");
  write(folder / "scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n");
  write(folder / "validation-100.csv", "progress,iteration,grad_sqr,grad_var\n100,100,1,1\n");
  auto application = Application::read(folder, {.largest_gpus = largest_gpus});
  cr_assert(application.ok(), "%s", application.ok() ? "" : application.error().text.c_str());
  return *std::move(application);
}

/// Gives each job the places of a list in turn, one at each decision, and then keeps the last.
class Scripted final : public Scheduler {
 public:
  explicit Scripted(std::map<std::string, std::vector<NodeGpus>> places)
      : places_(std::move(places)) {}
  BatchRule batch_rule() const override { return BatchRule::fixed; }
  std::vector<NodeGpus> decide(double, const std::vector<const SimulatedJob*>& jobs) override {
    std::vector<NodeGpus> decided;
    for (const SimulatedJob* job : jobs) {
      auto& left = places_[job->submission().name];
      decided.push_back(left.front());
      if (left.size() > 1) left.erase(left.begin());
    }
    return decided;
  }

 private:
  std::map<std::string, std::vector<NodeGpus>> places_;
};

constexpr SimulationTerms kTerms{.restart_s = 10, .round_s = 1000, .at_events = true};

Submission job(const std::string& name, const Application& application, double submit_s) {
  return {name, submit_s, &application, 1, 100};
}

/// "a" comes at 0 and "b" at 30. a: 1 GPU until b comes, then 2; b: 1 GPU.
Outcome two_jobs(const Application& application, const SimulationTerms& terms = kTerms) {
  Scripted scheduler({{"a", {{1, 0}, {2, 0}}}, {"b", {{0, 1}}}});
  return simulate({job("a", application, 0), job("b", application, 30)}, scheduler, terms);
}

bool near(double got, double want) { return std::abs(got - want) < 1e-6; }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

bool has(const std::string& text, const std::string& part) { return count(text, part) > 0; }

std::vector<std::vector<std::string>> words(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (std::string cell; cells >> cell;) rows.back().push_back(cell);
  }
  return rows;
}

Report some_report(const std::string& scheduler, const std::string& workload, double mean_s,
                   std::size_t done = 2) {
  Report report;
  report.scheduler = scheduler;
  report.workload = workload;
  report.jobs = 2;
  report.jobs_done = done;
  report.mean_completion_s = mean_s;
  return report;
}

}  // namespace

Test(simulate_report, counts_a_small_run) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  // a computes from 10 to 30, and with 2 GPUs from 40 for (100 - 20) / 2 s; b from 40 for 100 s.
  const Report report =
      make_report({"scripted", "two"}, two_jobs(application), kShape, kTerms, 1.5);
  cr_expect(report.scheduler == "scripted" && report.workload == "two");
  cr_expect(report.jobs == 2 && report.jobs_done == 2);
  cr_expect(near(report.of_jobs[0].completion_s, 80) && near(report.of_jobs[1].completion_s, 110));
  cr_expect(near(report.mean_completion_s, 95) && near(report.median_completion_s, 95));
  cr_expect(near(report.p99_completion_s, 110));
  cr_expect(near(report.gpu_hours, (30 + 2 * 50 + 110) / 3600.0));
  cr_expect(near(report.restarts_per_job, 0.5));
  cr_expect(near(report.end_s, 140) && report.decisions == 3 && near(report.wall_s, 1.5));
}

Test(simulate_report, knows_the_fair_share_of_each_job) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  const Report report = make_report({"scripted", "two"}, two_jobs(application), kShape, kTerms, 0);
  // While a is there, there are 130 / 80 jobs: 4 GPUs over that are 2.46. For b, 160 / 110: 2.75.
  // Alone on 2 GPUs, a start and 100 steps take 60 s.
  cr_expect(near(report.of_jobs[0].fairness, 80 / 60.0));
  cr_expect(near(report.of_jobs[1].fairness, 110 / 60.0));
  cr_expect(near(report.largest_fairness, 110 / 60.0));
  cr_expect(near(report.mean_fairness, 95 / 60.0));
}

Test(simulate_report, limits_the_fair_share_to_what_a_job_can_use) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "single", 1);
  const Report report = make_report({"scripted", "two"}, two_jobs(application), kShape, kTerms, 0);
  cr_expect(near(report.of_jobs[0].fairness, 80 / 110.0));
  cr_expect(near(report.of_jobs[1].fairness, 1));
}

Test(simulate_report, gives_a_share_of_one_gpu_where_jobs_are_many) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  Scripted scheduler({{"runs", {{1, 0}}}, {"waits", {{0, 0}}}});
  std::vector<Submission> submissions(9, job("waits", application, 0));
  submissions.push_back(job("runs", application, 0));
  SimulationTerms terms = kTerms;
  terms.until_s = 200;
  const Outcome outcome = simulate(submissions, scheduler, terms);
  const Report report = make_report({"scripted", "ten"}, outcome, kShape, terms, 0);
  cr_expect(report.jobs == 10 && report.jobs_done == 1);
  cr_expect(near(report.largest_fairness, 1), "the run alone doesn't end at 200 s of its own");
  cr_expect(near(report.of_jobs.back().completion_s, 110));
}

Test(simulate_report, leaves_open_what_no_job_says) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  SimulationTerms terms = kTerms;
  terms.until_s = 60;
  const Report report =
      make_report({"scripted", "two"}, two_jobs(application, terms), kShape, terms, 0);
  cr_expect(report.jobs == 2 && report.jobs_done == 0);
  cr_expect(std::isnan(report.mean_completion_s) && std::isnan(report.median_completion_s));
  cr_expect(std::isnan(report.p99_completion_s) && std::isnan(report.largest_fairness));
  cr_expect(std::isnan(report.mean_fairness) && std::isnan(report.of_jobs[0].completion_s));
  cr_expect(near(report.gpu_hours, (30 + 2 * 30 + 30) / 3600.0), "what was held so far counts");
  const auto json = report_json({report});
  cr_expect(json[0]["mean_completion_s"].is_null());
  cr_expect(json[0]["each_job"][0]["completion_s"].is_null());
  cr_expect(words(report_table({report}))[1][4] == "-");
}

Test(simulate_report, of_a_hundred_jobs_the_99th_is_the_percentile) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  Outcome outcome;
  for (int j = 0; j < 100; ++j) {
    // All end at 210 s, so that their completions are 210, 209, ... 111 s.
    outcome.jobs.emplace_back(job("j", application, j), BatchRule::fixed);
    SimulatedJob& last = outcome.jobs.back();
    last.place(100, {1, 0}, 10);
    last.pass();
    last.pass();
  }
  outcome.end_s = 210;
  const Report report = make_report({"s", "w"}, outcome, {.nodes = 50}, kTerms, 0);
  cr_expect(near(report.p99_completion_s, 209));
  cr_expect(near(report.median_completion_s, 160.5));
}

Test(simulate_report, table_has_a_row_for_each_report_and_a_mean) {
  const std::string table =
      report_table({some_report("one", "w1", 3600), some_report("two", "w1", 5400),
                    some_report("one", "w2", 10800, 1)});
  const auto rows = words(table);
  cr_assert(rows.size() == 5);
  cr_expect(table.starts_with("scheduler  workload   jobs  done  mean (h)  median (h)  p99 (h)"));
  using Row = std::vector<std::string>;
  const auto first = [&](std::size_t row, std::size_t cells) {
    return Row(rows[row].begin(), rows[row].begin() + static_cast<std::ptrdiff_t>(cells));
  };
  cr_expect(first(1, 5) == (Row{"one", "w1", "2", "2", "1.00"}));
  cr_expect(first(2, 5) == (Row{"one", "w2", "2", "1", "3.00"}));
  cr_expect(first(3, 7) == (Row{"one", "mean", "of", "2", "2", "1.50", "2.00"}));
  cr_expect(first(4, 5) == (Row{"two", "w1", "2", "2", "1.50"}), "and no mean of one");
  cr_expect(words(report_table({})).size() == 1, "titles");
}

Test(simulate_report, table_is_aligned_whatever_names_are) {
  const std::string table = report_table(
      {some_report("plain", "w", 3600), some_report("zw\xc3\xb6lf\n\x1b[31m", "w", 36000)});
  cr_expect(!has(table, "\x1b") && count(table, "\n") == 3);
  std::istringstream lines(table);
  std::vector<std::size_t> ends;
  for (std::string line; std::getline(lines, line);)
    ends.push_back(line.size() - count(line, "\xc3\xb6"));
  cr_expect(ends[0] == ends[1] && ends[1] == ends[2]);
}

Test(simulate_report, table_has_no_mean_where_a_workload_has_none) {
  const auto rows =
      words(report_table({some_report("s", "w1", 3600), some_report("s", "w2", kNaN)}));
  cr_expect(rows[3][6] == "-");
}

Test(simulate_report, json_says_it_all_and_can_be_written) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  const Outcome outcome = two_jobs(application);
  const auto json = report_json({make_report({"s\"", "w\xff"}, outcome, kShape, kTerms, 1.5)});
  const auto read = nlohmann::json::parse(json.dump());
  cr_assert(read.is_array() && read.size() == 1);
  cr_expect(read[0]["scheduler"] == "s\"" && read[0]["workload"] == "w\xef\xbf\xbd");
  cr_expect(read[0]["jobs"] == 2 && read[0]["jobs_done"] == 2 && read[0]["decisions"] == 3);
  cr_expect(near(read[0]["mean_completion_s"], 95) && near(read[0]["end_s"], 140));
  cr_expect(near(read[0]["mean_fairness"], 95 / 60.0) && near(read[0]["wall_s"], 1.5));
  const auto& jobs = read[0]["each_job"];
  cr_assert(jobs.size() == 2);
  cr_expect(jobs[0]["name"] == "a" && jobs[0]["application"] == "linear");
  cr_expect(near(jobs[0]["completion_s"], 80) && jobs[0]["restarts"] == 1);
  cr_expect(near(jobs[1]["submit_s"], 30) && jobs[1]["restarts"] == 0);
  cr_expect(report_json({}).dump() == "[]");
}

Test(simulate_picture, stacks_what_jobs_hold) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  Outcome outcome = two_jobs(application);
  // A pixel is 0.1 s.
  outcome.end_s = 120;
  outcome.spans = {{1, 40, 80, 1}, {0, 0, 60, 2}, {0, 60, 120, 1}};
  const std::string picture = gpu_picture(outcome, kShape, "run");
  cr_expect(has(picture, "d=\"M0 0h600v2h-600z\"><title>a, linear: 2 GPUs, 0.00 to 0.02 h<"));
  cr_expect(has(picture, "d=\"M600 0h600v1h-600z\"><title>a, linear: 1 GPU, "));
  cr_expect(has(picture, "d=\"M400 2h200v-1h200v1h-200v1h-200z\"><title>b, "), "above the first");
  cr_expect(count(picture, "<li>") == 1, "a colour for each application");
  cr_expect(has(picture, "prefers-color-scheme:dark") && has(picture, ">time (h)</text>"));
  cr_expect(has(picture, ">GPUs</text>") && has(picture, ">4</text>"));
  cr_expect(count(picture, "<svg") == 1 && !has(picture, "http"), "it needs nothing else");
}

Test(simulate_picture, shows_an_empty_run) {
  const std::string picture = gpu_picture({}, kShape, "nothing");
  cr_expect(has(picture, "</html>") && !has(picture, "nan") && !has(picture, "inf"));
}

Test(simulate_picture, takes_names_as_text) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "<b>&'\"");
  Scripted scheduler({{kHostile, {{1, 0}}}});
  const Outcome outcome = simulate({job(kHostile, application, 0)}, scheduler, kTerms);
  const std::string picture = gpu_picture(outcome, kShape, kHostile);
  cr_expect(!has(picture, "<script") && !has(picture, "<b>"));
  cr_expect(
      has(picture, std::string("<title>") + kHarmless + ", &lt;b&gt;&amp;&#39;&quot;: 1 GPU"));
  cr_expect(has(picture, std::string("aria-label=\"") + kHarmless + "\""));
  const std::string chart =
      curves_picture(kHostile, {{kHostile, kHostile, kHostile, false, {{kHostile, {}}}}});
  cr_expect(!has(chart, "<script") && count(chart, kHarmless) == 7);
}

Test(simulate_picture, stays_small) {
  const ScratchDir scratch;
  const Application application = linear(scratch, "linear");
  Outcome outcome;
  for (int j = 0; j < 160; ++j)
    outcome.jobs.emplace_back(job("a-job-with-a-name", application, 0), BatchRule::fixed);
  // 32 jobs at a time, each of which changes its size 25 times, not two at once.
  outcome.end_s = 5 * 25 * 320;
  for (std::size_t j = 0; j < 160; ++j)
    for (std::size_t change = 0; change < 25; ++change) {
      const double from_s = static_cast<double>((j / 32 * 25 + change) * 320 + j % 32 * 10);
      const std::uint32_t gpus = (change + j) % 2 == 0 ? 1 : 2;
      outcome.spans.push_back({j, from_s, from_s + 320, gpus});
    }
  const std::string picture = gpu_picture(outcome, {}, "many");
  cr_expect(count(picture, "<title>") > 3500);
  cr_expect(picture.size() < 2'000'000, "%zu bytes", picture.size());
}

Test(simulate_picture, draws_lines) {
  Chart chart{"title", "restart (s)", "completion (h)", false, {}};
  chart.lines = {{"one", {{0, 1}, {50, 2}, {100, 4}}},
                 {"two", {{0, kNaN}, {100, 3}, {kInfinity, 1}}}};
  const std::string picture = curves_picture("page", {chart});
  // The plot is 1200 by 480 at (70, 12), and 4.2 high.
  cr_expect(has(picture, "d=\"M70.0 377.7L670.0 263.4L1270.0 34.9\""));
  cr_expect(count(picture, "<circle") == 4 && has(picture, "<title>two: 100, 3</title>"));
  cr_expect(has(picture, ">restart (s)</text>") && has(picture, ">completion (h)</text>"));
  cr_expect(has(picture, ">100</text>") && has(picture, ">0.5</text>"));
  cr_expect(!has(picture, "nan") && !has(picture, "inf"));
  cr_expect(count(picture, "<li>") == 2);
}

Test(simulate_picture, draws_factors_as_distances) {
  Chart chart{"title", "x", "y", true, {{"one", {{0, 1}, {1, 1}, {10, 1}, {100, 1}}}}};
  std::string picture = curves_picture("page", {chart});
  cr_expect(count(picture, "<circle") == 3, "there is no 0");
  cr_expect(has(picture, "cx=\"70.0\"") && has(picture, "cx=\"670.0\"") &&
            has(picture, "cx=\"1270.0\""));
  for (const char* tick : {">1<", ">2<", ">5<", ">10<", ">20<", ">50<", ">100<"})
    cr_expect(has(picture, tick), "%s", tick);
  chart.lines = {{"one", {{30, 0}}}};
  picture = curves_picture("page", {chart});
  cr_expect(has(picture, "cx=\"670.0\"") && !has(picture, "nan") && !has(picture, "inf"));
  chart.lines = {{"one", {{31, 1}, {39, 1}}}};
  cr_expect(has(curves_picture("page", {chart}), ">35<"), "less than a power of 10 has marks too");
}
