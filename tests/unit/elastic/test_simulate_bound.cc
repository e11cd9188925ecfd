// SPDX-License-Identifier: Apache-2.0
// What no scheduler can do better.
#include <string>
#include <vector>

#include "elastic/simulate/bound.h"
#include "elastic/simulate/schedulers.h"
#include "tests/unit/elastic/simulate_support.h"

using namespace bellows;

TestSuite(bound, .timeout = 120);

namespace {

/// Steps without any exchange, in which a rank needs 0.1 s for a sample: no batch is better.
std::vector<Submission> jobs_of(const SmallProgram& program, int jobs, double apart_s) {
  std::vector<Submission> submissions;
  for (int j = 0; j < jobs; ++j)
    submissions.push_back({"job-" + std::to_string(j), apart_s * j, &program.application(), 1, 10});
  return submissions;
}

}  // namespace

Test(bound, is_what_can_be_reached_where_all_is_ideal) {
  const SmallProgram program({.inside = 0, .between = 0});
  LeastCompletion one({.nodes = 1, .gpus_per_node = 1});
  // 300 steps of 1 s on the only GPU.
  cr_expect(near(one.mean_s(jobs_of(program, 1, 0), 0), 300));
  cr_expect(near(one.mean_s(jobs_of(program, 1, 0), 30), 330));
  cr_expect(near(one.mean_s(jobs_of(program, 2, 0), 0), 450), "one after the other");
  cr_expect(near(one.mean_s(jobs_of(program, 2, 400), 0), 300), "with a gap between them");
  auto jobs = jobs_of(program, 2, 100);
  jobs[1].work = 0.5;
  cr_expect(near(one.mean_s(jobs, 0), (450 + 150) / 2.0), "the short one goes first");
}

Test(bound, knows_how_fast_a_job_can_be_alone) {
  const SmallProgram program({.inside = 0, .between = 0});
  LeastCompletion many({.nodes = 4, .gpus_per_node = 4});
  const double alone_s = many.mean_s(jobs_of(program, 1, 0), 0);
  // 2 ranks share 10 samples; more take more samples, which are worth less.
  cr_expect(alone_s < 150 && alone_s > 300.0 / 16, "%g", alone_s);
  cr_expect(near(many.mean_s(jobs_of(program, 3, 1000), 0), alone_s));
}

Test(bound, holds_for_each_scheduler) {
  const SmallProgram program;
  const ClusterShape shape{.nodes = 2, .gpus_per_node = 4};
  LeastCompletion least(shape);
  for (const SchedulerKind& kind : scheduler_kinds())
    for (const double apart_s : {5.0, 100.0, 1000.0}) {
      const auto jobs = with_batches(jobs_of(program, 12, apart_s), kind.batch, 1);
      const SimulationTerms terms{.restart_s = 10, .round_s = 20, .at_events = kind.at_events};
      const auto scheduler = make_scheduler(kind, shape, terms, 1);
      double sum = 0;
      for (const SimulatedJob& job : simulate(jobs, *scheduler, terms).jobs)
        sum += job.finish_s() - job.submission().submit_s;
      cr_expect(sum / 12 >= least.mean_s(jobs, 10), "%s, %g s apart: %g", kind.name.data(), apart_s,
                sum / 12);
    }
}
