// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
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
  std::size_t jobs = 0;  ///< in the workload, arrived or not
  std::size_t jobs_done = 0;
  double mean_completion_s = 0;
  double median_completion_s = 0;  ///< of an even number, the mean of the two in the middle
  double p99_completion_s = 0;     ///< the least that 99 % of the jobs do not exceed
  double gpu_hours = 0;            ///< that jobs held, computing or not, done or not
  double restarts_per_job = 0;     ///< the mean over all jobs; a job's start is not one
  double largest_fairness = 0;
  double mean_fairness = 0;
  double end_s = 0;  ///< when the run ended, in simulated time
  std::uint64_t decisions = 0;
  double wall_s = 0;               ///< how long the run took in real time
  std::vector<JobReport> of_jobs;  ///< in the order of submission
};

/// Which run it was.
struct RunLabel {
  std::string scheduler;
  std::string workload;
};

/// Of a run with this cluster and these terms, which took `wall_s` real seconds. The applications
/// of its jobs must still be there.
Report make_report(const RunLabel& label, const Outcome& outcome, const ClusterShape& shape,
                   const SimulationTerms& terms, double wall_s);

/// A plain table for a terminal: a row for each report, those of one scheduler together, and after
/// several of those a row with the mean of each column over them. "-" stands for NaN.
std::string report_table(const std::vector<Report>& reports);

/// An array with all that the reports say, each job included; units are those of the names. NaN
/// becomes null. Names have U+FFFD where they are not UTF-8, so that it can always be written.
nlohmann::ordered_json report_json(const std::vector<Report>& reports);

}  // namespace bellows
