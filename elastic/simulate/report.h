// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/simulate/cluster.h"

namespace bellows {

/// What became of one job.
struct JobReport {
  std::string name;
  std::string application;
  double submit_s = 0;
  double completion_s = 0;  ///< from its submission to its end; NaN: it is not done
  double fairness = 0;      ///< finish-time fairness, see Report; NaN: it is not done
  std::uint32_t restarts = 0;
};

/// What differs between the runs of a sweep, besides scheduler and workload.
struct RunSetting {
  double load = 1;
  double restart_s = 30;
  double round_s = 60;

  bool operator==(const RunSetting&) const = default;
};

/// What one workload made of one scheduler. Completions and fairness are those of jobs that are
/// done, and NaN if none is: where some are not, they look better than they are. A value type.
///
/// The finish-time fairness of a job (Mahajan et al., "Themis: Fair and Efficient GPU Cluster
/// Scheduling", NSDI 2020) is its completion time over what that would have been alone on its fair
/// share of the cluster; above 1 it was worse off. The fair share is ClusterShape::gpus() over the
/// mean number of jobs that were submitted and not done, this one included, in the time from the
/// job's submission to its end, which is taken to be at least 1. It is rounded down, but is at
/// least 1 GPU and at most Application::largest_gpus(), and is packed on as few nodes as can be.
/// Alone, the job gets these GPUs when it is submitted, computes after SimulationTerms::restart_s
/// seconds, keeps them and chooses its batch itself (BatchRule::adapted), whatever the scheduler's
/// rule was.
struct Report {
  std::string scheduler;
  std::string workload;
  RunSetting setting;
  std::size_t jobs = 0;  ///< in the workload, arrived or not
  std::size_t jobs_done = 0;
  double mean_completion_s = 0;
  double least_mean_s = std::numeric_limits<double>::quiet_NaN();  ///< see LeastCompletion
  double median_completion_s = 0;  ///< of an even number, the mean of the two in the middle
  double p99_completion_s = 0;     ///< the least that 99 % of the jobs do not exceed
  double gpu_hours = 0;            ///< that jobs held, computing or not, done or not
  double restarts_per_job = 0;     ///< the mean over all jobs; a job's start is not one
  double largest_fairness = 0;
  double mean_fairness = 0;
  double end_s = 0;  ///< when the run ended, in simulated time
  std::uint64_t decisions = 0;
  double wall_s = 0;  ///< how long the run took in real time
  /// Of the run that this one is compared with; NaN: with none.
  double baseline_mean_s = std::numeric_limits<double>::quiet_NaN();
  std::vector<JobReport> of_jobs;  ///< in the order of submission
};

/// Which run it was.
struct RunLabel {
  std::string scheduler;
  std::string workload;
  double load = 1;  ///< see at_load
};

/// Of a run with this cluster and these terms, which took `wall_s` real seconds. The applications
/// of its jobs must still be there.
Report make_report(const RunLabel& label, const Outcome& outcome, const ClusterShape& shape,
                   const SimulationTerms& terms, double wall_s);

/// The scheduler and the time of a restart that others are compared with.
struct Baseline {
  std::string scheduler;
  double restart_s = 0;
};

/// Tells each report the mean completion of the baseline with its workload, and with its setting
/// but for the restart; NaN: there is no such run beside it.
void compare_with(const Baseline& baseline, std::vector<Report>& reports);

/// A plain table for a terminal: a row for each report, those of one scheduler and setting
/// together, and after several of those a row with the mean of each column over them. Settings have
/// a column where they differ, and so has the mean completion over the baseline's. "-" stands for
/// NaN.
std::string report_table(const std::vector<Report>& reports);

/// An array with all that the reports say, each job included; units are those of the names. NaN
/// becomes null. Names have U+FFFD where they are not UTF-8, so that it can always be written.
nlohmann::ordered_json report_json(const std::vector<Report>& reports);

}  // namespace bellows
