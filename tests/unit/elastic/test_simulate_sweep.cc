// SPDX-License-Identifier: Apache-2.0
// Runs with several settings: which there are, how they are compared, and their curves.
#include <criterion/criterion.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "elastic/simulate/sweep.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(simulate_sweep, .timeout = 20);

namespace {

Report run(const std::string& scheduler, const RunSetting& setting, double mean_s,
           const std::string& workload = "w") {
  Report report;
  report.scheduler = scheduler;
  report.workload = workload;
  report.setting = setting;
  report.mean_completion_s = mean_s;
  return report;
}

}  // namespace

Test(simulate_sweep, has_each_value_with_each_other) {
  const Sweep sweep{.restarts_s = {2, 30}, .rounds_s = {60, 120}};
  const std::vector<RunSetting> wanted = {{1, 2, 60}, {1, 2, 120}, {1, 30, 60}, {1, 30, 120}};
  cr_expect(sweep.settings() == wanted);
  const Sweep by_load{.loads = {1, 2}};
  cr_expect(by_load.settings().back() == (RunSetting{2, 30, 60}));
  cr_expect(Sweep().settings() == std::vector<RunSetting>{RunSetting{}});
}

Test(simulate_sweep, compares_with_another_restart_of_the_same_workload_and_round) {
  std::vector<Report> reports = {
      run("ours", {1, 2, 60}, 50),        run("ours", {1, 30, 60}, 80),
      run("pollux", {1, 2, 60}, 90),      run("pollux", {1, 30, 60}, 100),
      run("ours", {1, 2, 60}, 70, "w2"),  run("pollux", {1, 30, 60}, 200, "w2"),
      run("pollux", {1, 30, 99}, 7, "w"), run("ours", {1, 2, 60}, 1, "w3")};
  compare_with({"pollux", 30}, reports);
  const double wanted[] = {100, 100, 100, 100, 200, 200, 7};
  for (std::size_t i = 0; i < std::size(wanted); ++i)
    cr_expect(reports[i].baseline_mean_s == wanted[i], "report %zu", i);
  cr_expect(std::isnan(reports[7].baseline_mean_s), "Pollux did not run w3");
}

Test(simulate_sweep, table_shows_what_differs_and_the_ratio_of_means) {
  std::vector<Report> reports = {run("ours", {1, 2, 60}, 50), run("ours", {1, 2, 60}, 250, "w2"),
                                 run("pollux", {1, 30, 60}, 100),
                                 run("pollux", {1, 30, 60}, 300, "w2")};
  const std::string plain = report_table({reports[0], reports[1]});
  cr_expect(!has(plain, "restart (s)") && !has(plain, "round (s)") && !has(plain, "baseline"));
  compare_with({"pollux", 30}, reports);
  const std::string table = report_table(reports);
  cr_expect(has(table, "restart (s)") && has(table, "over baseline") && !has(table, "round (s)"));
  cr_expect(has(table, " 0.500 ") && has(table, " 0.833 "));
  cr_expect(has(table, " 0.750 "), "of both: 300 over 400, and not the mean of the ratios");
}

Test(simulate_sweep, has_a_chart_for_each_part_that_differs) {
  const std::vector<Report> reports = {
      run("a", {1, 3, 60}, 3600),  run("a", {1, 3, 60}, 7200, "w2"),
      run("a", {1, 30, 60}, 7200), run("a", {1, 30, 60}, 7200, "w2"),
      run("b", {1, 3, 60}, 1800),  run("b", {1, 30, 60}, 3600)};
  const auto charts = sweep_charts(reports);
  cr_assert(charts.size() == 1);
  cr_expect(charts[0].x_title == "restart (s)" && charts[0].logarithmic_x);
  cr_assert(charts[0].lines.size() == 2);
  using Points = std::vector<std::pair<double, double>>;
  cr_expect(charts[0].lines[0].name == "a");
  cr_expect(charts[0].lines[0].points == (Points{{3, 1.5}, {30, 2}}), "the mean of the workloads");
  cr_expect(charts[0].lines[1].points == (Points{{3, 0.5}, {30, 1}}));
}

Test(simulate_sweep, has_lines_for_what_else_differs) {
  const auto charts = sweep_charts({run("a", {1, 0, 60}, 1), run("a", {1, 0, 90}, 2),
                                    run("a", {1, 30, 60}, 3), run("a", {1, 30, 90}, 4)});
  cr_assert(charts.size() == 2);
  cr_expect(!charts[0].logarithmic_x, "0 has no logarithm");
  cr_expect(charts[0].lines[1].name == "a, round 90 s");
  cr_expect(charts[1].x_title == "round (s)" && !charts[1].logarithmic_x);
  cr_expect(charts[1].lines[1].name == "a, restart 30 s");
  cr_expect(sweep_charts({run("a", {}, 1)}).empty());
}
