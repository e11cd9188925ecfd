// SPDX-License-Identifier: Apache-2.0
// bellowsd's planner in simulated time.
#include <criterion/criterion.h>

#include <algorithm>
#include <vector>

#include "elastic/simulate/bellowsd.h"
#include "elastic/simulate/cluster.h"
#include "tests/unit/elastic/simulate_support.h"

using namespace bellows;

TestSuite(bellowsd, .timeout = 20);

namespace {

constexpr ClusterShape kShape{.nodes = 2, .gpus_per_node = 4};
constexpr SimulationTerms kTerms{
    .restart_s = 6, .start_s = 2, .round_s = 1, .at_events = true, .until_s = 1e5};

/// 100 steps of 80 samples on each of three epochs, which scale perfectly.
struct World {
  SmallProgram program{{.inside = 0, .between = 0}};
  PlanTerms plan;

  World() {
    plan.dwell_s = 30;
    plan.restarts_per_hour = 100;
  }
  Submission job(double at, std::uint32_t gpus, const std::string& tenant = "a") const {
    Submission submission{"job", at, &program.application(), gpus, 80};
    submission.tenant = tenant;
    return submission;
  }
  Outcome run(const std::vector<Submission>& submissions,
              const SimulationTerms& terms = kTerms) const {
    const auto scheduler = make_bellowsd(kShape, plan, terms);
    return simulate(submissions, *scheduler, terms);
  }
};

std::vector<HeldSpan> spans_of(const Outcome& outcome, std::size_t job) {
  std::vector<HeldSpan> spans;
  std::copy_if(outcome.spans.begin(), outcome.spans.end(), std::back_inserter(spans),
               [job](const HeldSpan& span) { return span.job == job; });
  return spans;
}

std::uint32_t held_at(const Outcome& outcome, std::size_t job, double now) {
  for (const HeldSpan& span : spans_of(outcome, job))
    if (span.from_s <= now && now < span.to_s) return span.gpus;
  return 0;
}

}  // namespace

Test(bellowsd, a_job_alone_doubles_whenever_it_has_dwelt) {
  const World world;
  const auto spans = spans_of(world.run({world.job(10, 1)}), 0);
  cr_assert(spans.size() == 4, "%zu sizes", spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) cr_expect(spans[i].gpus == 1U << i);
  cr_expect(spans[0].from_s == 10, "Slurm starts it at once");
  // 30 s after its start, by clocks of whole seconds.
  cr_expect(near(spans[0].to_s - spans[0].from_s, 30), "%f", spans[0].to_s - spans[0].from_s);
  // A plan takes 4 of the 6 s until it starts.
  cr_expect(near(spans[1].to_s - spans[1].from_s, 34), "%f", spans[1].to_s - spans[1].from_s);
}

Test(bellowsd, a_start_on_free_gpus_is_cheaper_than_a_restart) {
  World world;
  world.plan.dwell_s = 100000;
  const double whole = world.run({world.job(0, 8)}).jobs[0].finish_s();
  SimulationTerms dear = kTerms;
  dear.start_s = 5;
  cr_expect(near(world.run({world.job(0, 8)}, dear).jobs[0].finish_s(), whole + 3));
  dear.start_s.reset();
  cr_expect(near(world.run({world.job(0, 8)}, dear).jobs[0].finish_s(), whole + 4));
}

Test(bellowsd, one_that_runs_makes_room_and_is_not_stopped) {
  const World world;
  const Outcome outcome = world.run({world.job(0, 8), world.job(100, 8)});
  cr_expect(held_at(outcome, 0, 99) == 8);
  cr_expect(held_at(outcome, 0, 101) == 4, "%u", held_at(outcome, 0, 101));
  cr_expect(held_at(outcome, 1, 101) == 4, "%u", held_at(outcome, 1, 101));
  const auto spans = spans_of(outcome, 0);
  for (std::size_t i = 1; i < spans.size(); ++i) cr_expect(spans[i].from_s == spans[i - 1].to_s);
}

Test(bellowsd, tenants_have_what_their_limits_say) {
  World world;
  const std::vector<Submission> jobs = {world.job(0, 8, "a"), world.job(100, 1, "b")};
  const auto most = [&jobs](const World& with) {
    std::uint32_t gpus = 0;
    for (const HeldSpan& span : spans_of(with.run(jobs), 1)) gpus = std::max(gpus, span.gpus);
    return gpus;
  };
  cr_expect(most(world) > 2, "%u", most(world));
  world.plan.tenants["b"].limit = 2;
  cr_expect(most(world) == 2, "%u", most(world));
}

Test(bellowsd, one_that_does_not_scale_gives_back_what_it_tried) {
  World world;
  const SmallProgram slow({.inside = 100, .between = 100});
  Submission submission = world.job(0, 1);
  submission.application = &slow.application();
  const Outcome outcome = world.run({submission});
  const auto spans = spans_of(outcome, 0);
  cr_assert(spans.size() >= 3);
  cr_expect(spans[1].gpus == 2 && spans[2].gpus == 1);
  cr_expect(spans.size() == 3, "and does not try again: %zu", spans.size());
}

Test(bellowsd, what_comes_during_a_plan_waits_for_its_end) {
  const World world;
  const Outcome outcome = world.run({world.job(0, 1), world.job(31, 1)});
  cr_assert(spans_of(outcome, 0)[0].to_s == 30);
  cr_expect(near(spans_of(outcome, 1)[0].from_s, 34), "%f", spans_of(outcome, 1)[0].from_s);
}
