// SPDX-License-Identifier: Apache-2.0
// Jobs in simulated time, and runs of whole workloads with a scheduler that does as it is told.
#include <criterion/criterion.h>

#include <vector>

#include "elastic/simulate/cluster.h"
#include "elastic/simulate/goodput_table.h"
#include "elastic/simulate/job.h"
#include "tests/unit/elastic/simulate_support.h"

using namespace bellows;

TestSuite(job, .timeout = 20);
TestSuite(simulate, .timeout = 20);

namespace {

Submission asks(const SmallProgram& program, double submit_s, std::uint32_t gpus = 1,
                std::uint32_t batch = 10) {
  return {"job", submit_s, &program.application(), gpus, batch};
}

/// Passes by itself until it is done.
double finish(SimulatedJob& job) {
  for (int i = 0; i < 100 && !job.is_done(); ++i) job.pass();
  cr_assert(job.is_done());
  return job.finish_s();
}

/// When a job with these GPUs and this batch, which no one changes, is done.
double finish_on(const SmallProgram& program, const NodeGpus& gpus, std::uint32_t batch) {
  SimulatedJob job(asks(program, 0, 1, batch), BatchRule::fixed);
  job.place(0, gpus, 0);
  return finish(job);
}

/// All jobs on one GPU of a node of their own.
std::vector<NodeGpus> one_each(double, const Jobs& jobs) {
  std::vector<NodeGpus> placed;
  for (const SimulatedJob* job : jobs) {
    NodeGpus gpus(4);
    gpus[static_cast<std::size_t>(job->submission().submit_s) % 4] = 1;
    placed.push_back(gpus);
  }
  return placed;
}

bool is(const HeldSpan& span, double from_s, double to_s, std::uint32_t gpus) {
  return near(span.from_s, from_s) && near(span.to_s, to_s) && span.gpus == gpus;
}

}  // namespace

Test(job, has_as_much_to_do_as_is_said) {
  const SmallProgram program;
  Submission half = asks(program, 0);
  half.work = 0.5;
  SimulatedJob job(half, BatchRule::fixed);
  job.place(0, {1}, 0);
  cr_expect(near(finish(job), 150), "of 300 s");
  cr_expect(near(job.progress(150), 150) && near(job.progress_after(3), 150));
}

Test(job, takes_what_its_steps_take) {
  const SmallProgram program;
  cr_expect(near(finish_on(program, {1}, 10), 300), "300 steps of 1 s");
  cr_expect(near(finish_on(program, {2}, 10), 300), "5 samples, 0.5 s, and as much to exchange");
  cr_expect(near(finish_on(program, {2}, 20), 300 / (4.0 / 3) * 1.5), "10 samples and 0.5 s");
  cr_expect(near(finish_on(program, {0, 1, 1}, 20), 300 / (4.0 / 3) * 2.5), "between nodes");
  cr_expect(near(finish_on(program, {1}, 20), 300 / (4.0 / 3) * 2), "two passes of 10 samples");
  cr_expect(near(finish_on(program, {2}, 160), 300 / (32.0 / 17) * 8.5), "two passes of 40");
}

Test(job, restarts_before_it_computes) {
  const SmallProgram program;
  SimulatedJob job(asks(program, 40), BatchRule::fixed);
  cr_expect(job.next_s() == SimulatedJob::kNever && job.gpus() == 0);
  cr_expect(job.age_s(100) == 60 && job.waited_s(100) == 60);
  job.place(100, {0, 1}, 30);
  cr_expect(job.next_s() == 130 && job.gpus() == 1 && job.restarts() == 0);
  cr_expect(job.waited_s(120) == 0 && job.progress(129) == 0 && !job.noise());
  job.pass();
  cr_expect(near(job.progress(150), 20) && near(job.next_s(), 230));
  cr_expect(*job.noise() == (GradientNoise{1, 1}));
  cr_expect(near(finish(job), 430));
  cr_expect(job.gpus() == 0 && job.held().empty() && job.epoch() == 3);
  cr_expect(near(job.progress(430), 300) && near(job.progress(1000), 300));
  cr_expect(near(job.service(1000), 330));
}

Test(job, keeps_its_progress_when_its_gpus_change) {
  const SmallProgram program({.inside = 0.3, .between = 1.5});
  SimulatedJob job(asks(program, 0), BatchRule::fixed);
  job.place(0, {1, 0}, 30);
  job.pass();
  job.place(90, {2, 0}, 30);
  cr_expect(near(job.progress(90), 60) && near(job.progress(110), 60), "60 steps of the first 100");
  cr_expect(job.restarts() == 1 && job.epoch() == 0);
  job.pass();
  cr_expect(near(job.next_s(), 120 + 40 * 0.8), "the rest of the epoch, with steps of 0.8 s");
  job.pass();
  cr_expect(job.epoch() == 1 && near(job.progress(job.next_s()), 200));
  job.place(160, {}, 30);
  cr_expect(near(job.progress(500), 110) && job.next_s() == SimulatedJob::kNever);
  cr_expect(job.waited_s(200) == 40 && near(job.service(500), 1 * 90 + 2 * 70));
  job.place(500, {0, 1}, 30);
  cr_expect(job.restarts() == 2);
  cr_expect(near(finish(job), 530 + 190));
  cr_expect(near(job.service(9999), 1 * 90 + 2 * 70 + 1 * 220));
}

Test(job, loses_a_restart_that_was_not_over) {
  const SmallProgram program;
  SimulatedJob job(asks(program, 0), BatchRule::fixed);
  job.place(0, {1}, 30);
  job.place(20, {2}, 30);
  cr_expect(job.restarts() == 1 && job.next_s() == 50 && job.progress(50) == 0);
  cr_expect(near(finish(job), 350));
}

Test(job, adapts_its_batch_from_the_second_epoch) {
  const SmallProgram program;
  SimulatedJob job(asks(program, 0), BatchRule::adapted);
  job.place(0, {4}, 0);
  cr_expect(job.speed().samples().empty());
  job.pass();
  const StepSample& first = job.speed().samples().at(0);
  cr_expect(first.layout == (GpuLayout{1, 4}) && first.local_batch == 3, "the smallest batch");
  cr_expect(near(first.compute_s, 0.3) && near(first.step_s, 0.8), "below what was measured");
  const Goodput best = best_goodput(
      possible_batches(*job.speed().model(), program.application().limits(), {1, 4}), {1, 1});
  const double since = job.next_s();
  job.pass();
  const double gain = step_gain({1, 1}, static_cast<double>(best.batch.in_all({1, 4})) / 10);
  const double step_s = 0.1 * best.batch.local * best.batch.passes + 0.5;
  cr_expect(best.batch.local > 3 && near(job.next_s() - since, 100 * step_s / gain));
  cr_expect(job.speed().samples().at(1).local_batch == best.batch.local);
}

Test(job, a_fixed_one_tells_nothing_of_its_speed) {
  const SmallProgram program;
  SimulatedJob job(asks(program, 0), BatchRule::fixed);
  job.place(0, {1}, 0);
  finish(job);
  cr_expect(job.speed().samples().empty());
}

Test(job, goodput_table_follows_record_and_noise) {
  const BatchLimits limits{
      .submitted = 10, .smallest = 10, .largest = 160, .smallest_local = 5, .largest_local = 40};
  const auto fresh = [&](const SpeedRecord& speed, const GradientNoise& noise) {
    return best_goodput(possible_batches(*speed.model(), limits, {1, 2}), noise).per_s;
  };
  GoodputTable table;
  SpeedRecord speed;
  speed.add({{1, 1}, 10, 1, 1});
  const double before = table.at(speed, {1, 1}, limits, {1, 2});
  cr_expect(before == fresh(speed, {1, 1}) && before == table.at(speed, {1, 1}, limits, {1, 2}));
  cr_expect(table.at(speed, {1, 8}, limits, {1, 2}) == fresh(speed, {1, 8}));
  speed.add({{1, 2}, 10, 1, 3});
  const double after = table.at(speed, {1, 1}, limits, {1, 2});
  cr_expect(after == fresh(speed, {1, 1}) && after < before);
  cr_expect(table.at(speed, {1, 1}, limits, {9, 33}) == 0, "too many ranks");
  cr_expect(packed_layout(4, 4) == (GpuLayout{1, 4}) && packed_layout(5, 4) == (GpuLayout{2, 5}));
}

Test(simulate, one_job_in_rounds) {
  const SmallProgram program;
  ScriptedScheduler scheduler(one_each);
  std::vector<double> times;
  const Outcome outcome =
      simulate({asks(program, 5)}, scheduler, {}, [&](double now, std::size_t done) {
        times.push_back(now);
        cr_expect(done == 0);
      });
  cr_expect(near(outcome.jobs[0].finish_s(), 60 + 30 + 300), "the round, the start, the steps");
  cr_expect(near(outcome.end_s, 390));
  cr_expect(outcome.spans.size() == 1 && is(outcome.spans[0], 60, 390, 1));
  cr_expect(times == (std::vector<double>{60, 120, 180, 240, 300, 360}));
  cr_expect(outcome.decisions == 6);
}

Test(simulate, one_job_at_its_events) {
  const SmallProgram program;
  ScriptedScheduler scheduler(one_each);
  const Outcome outcome =
      simulate({asks(program, 5)}, scheduler, {.restart_s = 10, .at_events = true});
  cr_expect(near(outcome.jobs[0].finish_s(), 5 + 10 + 300));
  cr_expect(outcome.spans.size() == 1 && is(outcome.spans[0], 5, 315, 1));
}

Test(simulate, a_round_never_lies_in_the_past) {
  const SmallProgram program;
  double last = 0;
  ScriptedScheduler scheduler([&](double now, const Jobs& jobs) {
    cr_expect(now >= last, "%g after %g", now, last);
    last = now;
    for (const SimulatedJob* job : jobs) cr_expect(job->age_s(now) >= 0);
    return one_each(now, jobs);
  });
  const std::vector<Submission> submissions = {asks(program, 791), asks(program, 2501)};
  Outcome outcome = simulate(submissions, scheduler, {});
  cr_expect(near(outcome.jobs[0].finish_s(), 840 + 330));
  cr_expect(near(outcome.jobs[1].finish_s(), 2520 + 330), "after a time without a job");
  last = 0;
  outcome = simulate(submissions, scheduler, {.at_events = true});
  cr_expect(near(outcome.jobs[0].finish_s(), 791 + 330));
  cr_expect(near(outcome.jobs[1].finish_s(), 2501 + 330));
}

Test(simulate, a_job_changes_its_gpus) {
  const SmallProgram program({.inside = 0.3, .between = 1.5});
  ScriptedScheduler scheduler([](double now, const Jobs&) -> std::vector<NodeGpus> {
    if (now < 120) return {{1, 0}};
    if (now < 180) return {{}};
    if (now < 240) return {{0, 0}};
    return {{0, 2}};
  });
  const Outcome outcome = simulate({asks(program, 0)}, scheduler, {});
  // 90 steps until 120; the other 210 take 0.8 s each, from 270.
  cr_expect(near(outcome.jobs[0].finish_s(), 270 + 168));
  cr_expect(outcome.jobs[0].restarts() == 1);
  cr_expect(outcome.spans.size() == 2);
  cr_expect(is(outcome.spans[0], 0, 120, 1) && is(outcome.spans[1], 240, 438, 2));
  cr_expect(near(outcome.jobs[0].service(1000), 120 + 2 * 198));
}

Test(simulate, an_end_makes_room_at_once_or_at_the_next_round) {
  const SmallProgram program;
  // One GPU, for the first of the jobs that are there.
  ScriptedScheduler scheduler([](double, const Jobs& jobs) {
    std::vector<NodeGpus> placed(jobs.size(), NodeGpus{0});
    placed[0] = {1};
    return placed;
  });
  const std::vector<Submission> submissions = {asks(program, 0), asks(program, 7)};
  Outcome outcome = simulate(submissions, scheduler, {.restart_s = 10});
  cr_expect(near(outcome.jobs[0].finish_s(), 310));
  cr_expect(near(outcome.jobs[1].finish_s(), 360 + 310));
  outcome = simulate(submissions, scheduler, {.restart_s = 10, .at_events = true});
  cr_expect(near(outcome.jobs[1].finish_s(), 310 + 310));
  cr_expect(outcome.spans.size() == 2 && outcome.spans[1].job == 1);
}

Test(simulate, a_start_on_free_gpus_has_its_own_cost) {
  const SmallProgram program;
  ScriptedScheduler scheduler([](double now, const Jobs&) -> std::vector<NodeGpus> {
    if (now < 100) return {{2}};
    return {{1}, {1}};
  });
  const SimulationTerms terms{.restart_s = 10, .start_s = 4, .at_events = true};
  Outcome outcome = simulate({asks(program, 0)}, scheduler, terms);
  const SimulationTerms dear{.restart_s = 10, .at_events = true};
  cr_expect(near(outcome.jobs[0].finish_s() + 6,
                 simulate({asks(program, 0)}, scheduler, dear).jobs[0].finish_s()));
  outcome = simulate({asks(program, 0), asks(program, 100)}, scheduler, terms);
  cr_expect(near(outcome.jobs[1].finish_s(), 100 + 10 + 300), "another gives up a GPU for it");
}

Test(simulate, ends_in_time) {
  const SmallProgram program;
  ScriptedScheduler scheduler(one_each);
  Outcome outcome = simulate({asks(program, 0), asks(program, 1), asks(program, 5000)}, scheduler,
                             {.until_s = 200});
  cr_expect(outcome.end_s == 200);
  cr_expect(!outcome.jobs[0].is_done() && near(outcome.jobs[0].progress(200), 170));
  cr_expect(outcome.spans.size() == 2);
  cr_expect(is(outcome.spans[0], 0, 200, 1) && is(outcome.spans[1], 60, 200, 1));

  ScriptedScheduler nothing(
      [](double, const Jobs& jobs) { return std::vector<NodeGpus>(jobs.size(), NodeGpus{0}); });
  outcome = simulate({asks(program, 0)}, nothing, {.until_s = 1000});
  cr_expect(outcome.end_s == 1000 && outcome.spans.empty() && outcome.decisions == 17);
  outcome = simulate({}, nothing, {});
  cr_expect(outcome.end_s == 0 && outcome.jobs.empty());
}
