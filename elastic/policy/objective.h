// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "elastic/optimizer/tenant_curve.h"

namespace bellows {

/// What a division of GPUs among jobs is to be good at.
enum class Objective {
  throughput,  ///< the sum of the jobs' speed-ups, in samples (2006.13878)
  goodput,     ///< the sum of the jobs' speed-ups, in progress
  fair         ///< the least sum of the jobs' speed-ups, in progress, to a negative power
};

/// A size that a job may have and how fast it would be there.
struct SizeSpeed {
  std::uint32_t gpus = 0;
  std::uint32_t batch = 0;  ///< samples in a step of the whole job
  double samples_per_s = 0;
  double progress_per_s = 0;  ///< in steps of the submitted batch
};

/// What is known of a job that waits or runs.
struct JobState {
  std::vector<SizeSpeed> sizes;  ///< in ascending order of gpus
  std::uint32_t now = 0;         ///< GPUs that it holds; 0: it waits
  double age_s = 0;              ///< since its submission
  std::uint32_t restarts = 0;    ///< changes of its GPUs after its start
  double waited_s = 0;           ///< since it last held GPUs, or since its submission; 0: it runs
  double service = 0;            ///< GPU-seconds that it has held
  std::uint32_t job_class = 0;   ///< jobs that scale alike and have about as much to do
  /// GPU-seconds that it will still take, so far as jobs of its class that have finished tell.
  std::optional<double> left = {};
  double weight = 1;  ///< what its speed counts beside the others'; positive, and 20 at most
};

struct ObjectiveTerms {
  Objective objective = Objective::fair;
  double restart_s = 0;  ///< seconds without progress at every change
  /// A plan is taken to last this many seconds at most, or as long as three restarts, and a job as
  /// long as is left of it or, where that is not known, as it has computed: over that time a
  /// restart has to pay off.
  double horizon_s = 300;
  /// With `fair`, a job that has waited so long takes the place of one that has run, be it as fast
  /// as it may. With n jobs of which m fit at their smallest sizes, none waits longer than this
  /// times the number of other jobs over m, rounded up.
  double patience_s = 3600;
};

/// Weights by which jobs end one after another: in the mean that takes them less time than side by
/// side, where all end last. Between all jobs by what is left of them, to the power of -1/2: to its
/// inverse would end the shortest first, and not at all would let each count alike. Of a class of
/// which no job has finished, jobs are taken to go on for as long as its longest has. Within a
/// class, where all have about as much to do, by the service that they have attained: from 0.1 to 2
/// times the mean of their class, so that those that began first end first.
void weigh_by_class(std::vector<JobState>& jobs);

/// The jobs' values in one fixed point, so that the optimizer's best total is the best division.
std::vector<ElasticJob> value_jobs(const std::vector<JobState>& jobs, const ObjectiveTerms& terms);

}  // namespace bellows
