// SPDX-License-Identifier: Apache-2.0
// Places on nodes, and the schedulers of the simulator.
#include <criterion/criterion.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "elastic/simulate/cluster.h"
#include "elastic/simulate/optimus.h"
#include "elastic/simulate/packing.h"
#include "elastic/simulate/schedulers.h"
#include "elastic/simulate/tiresias.h"
#include "tests/unit/elastic/simulate_support.h"

using namespace bellows;

TestSuite(packing, .timeout = 20);
TestSuite(tiresias, .timeout = 20);
TestSuite(optimus, .timeout = 20);
TestSuite(schedulers, .timeout = 120);

namespace {

SimulatedJob job_of(const SmallProgram& program, std::uint32_t gpus, std::uint32_t batch = 40) {
  return {{"job", 0, &program.application(), gpus, batch}, BatchRule::fixed};
}

std::uint32_t sum(const NodeGpus& gpus) {
  return std::accumulate(gpus.begin(), gpus.end(), std::uint32_t{0});
}

std::size_t nodes(const NodeGpus& gpus) { return placement_of(gpus).size(); }

/// What is wrong with places in a cluster, or nothing.
std::string wrong_with(const ClusterShape& shape, const std::vector<NodeGpus>& placed,
                       std::size_t jobs) {
  if (placed.size() != jobs) return "there is not one place for each job";
  std::vector<std::uint32_t> used(shape.nodes);
  for (const NodeGpus& gpus : placed) {
    if (!gpus.empty() && gpus.size() != shape.nodes) return "a place is of another cluster";
    for (std::size_t n = 0; n < gpus.size(); ++n) used[n] += gpus[n];
  }
  return std::all_of(used.begin(), used.end(), [&](auto n) { return n <= shape.gpus_per_node; })
             ? ""
             : "a node has fewer GPUs";
}

/// Holds another scheduler to what every one has to keep.
class HeldToRules : public Scheduler {
 public:
  HeldToRules(const ClusterShape& shape, std::unique_ptr<Scheduler> inner)
      : shape_(shape), inner_(std::move(inner)) {}

  BatchRule batch_rule() const override { return inner_->batch_rule(); }
  const JobClass* class_for(const Application& application) override {
    return inner_->class_for(application);
  }

  std::vector<NodeGpus> decide(double now, const Jobs& jobs) override {
    cr_assert(now >= last_, "time goes back");
    last_ = now;
    cr_assert(!jobs.empty());
    for (const SimulatedJob* job : jobs) {
      cr_assert(!job->is_done() && job->age_s(now) >= 0);
      cr_assert(std::isfinite(job->progress(now)) && job->progress(now) >= 0);
    }
    auto placed = inner_->decide(now, jobs);
    const std::string wrong = wrong_with(shape_, placed, jobs.size());
    cr_assert(wrong.empty(), "%s", wrong.c_str());
    return placed;
  }

 private:
  ClusterShape shape_;
  std::unique_ptr<Scheduler> inner_;
  double last_ = 0;
};

std::vector<Submission> random_workload(const std::vector<const SmallProgram*>& programs,
                                        std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> times(10);
  for (double& time : times) time = static_cast<double>(random() % 3000);
  std::sort(times.begin(), times.end());
  std::vector<Submission> submissions;
  for (const double time : times) {
    const auto gpus = 1 + static_cast<std::uint32_t>(random() % 8);
    const SmallProgram& program = *programs[random() % programs.size()];
    submissions.push_back({"job", time, &program.application(), gpus, 10 * gpus});
  }
  return submissions;
}

/// The spans are what the jobs held: one after another, and as much as was counted.
void check_spans(const Outcome& outcome) {
  std::map<std::size_t, double> last;
  std::map<std::size_t, double> service;
  for (const HeldSpan& span : outcome.spans) {
    cr_assert(span.gpus > 0 && span.to_s >= span.from_s && span.from_s >= last[span.job]);
    cr_assert(span.from_s >= outcome.jobs[span.job].submission().submit_s);
    cr_assert(span.to_s <= outcome.end_s);
    last[span.job] = span.to_s;
    service[span.job] += span.gpus * (span.to_s - span.from_s);
  }
  for (std::size_t j = 0; j < outcome.jobs.size(); ++j)
    cr_assert(near(service[j], outcome.jobs[j].service(outcome.end_s)), "job %zu", j);
}

void check_workload(const SchedulerKind& kind, const std::vector<Submission>& submissions) {
  const ClusterShape shape{.nodes = 3, .gpus_per_node = 4};
  SimulationTerms terms{.at_events = kind.at_events, .until_s = 1e6};
  const auto run = [&] {
    HeldToRules scheduler(shape, make_scheduler(kind, shape, terms, 1));
    return simulate(submissions, scheduler, terms);
  };
  const std::string name(kind.name);
  const Outcome outcome = run();
  check_spans(outcome);
  for (const SimulatedJob& job : outcome.jobs) {
    cr_assert(job.is_done(), "%s: a job is not done", name.c_str());
    cr_assert(job.finish_s() > job.submission().submit_s + terms.restart_s, "%s", name.c_str());
    cr_assert(near(job.progress(outcome.end_s), 300), "%s", name.c_str());
  }
  terms.until_s = 1000.5;
  const Outcome part = run();
  cr_assert(part.end_s == 1000.5, "%s", name.c_str());
  check_spans(part);
  for (std::size_t j = 0; j < part.jobs.size(); ++j)
    if (part.jobs[j].is_done())
      cr_assert(part.jobs[j].finish_s() == outcome.jobs[j].finish_s(), "%s", name.c_str());
}

}  // namespace

Test(packing, takes_the_fewest_nodes_that_fit_best) {
  FreeGpus free({.nodes = 4, .gpus_per_node = 4});
  free.take({1, 3, 2, 0});
  cr_expect(free.take_packed(2) == (NodeGpus{0, 0, 2, 0}), "the node that has just enough");
  cr_expect(free.take_packed(1) == (NodeGpus{0, 1, 0, 0}));
  cr_expect(free.take_packed(6) == (NodeGpus{2, 0, 0, 4}));
  cr_expect(free.take_packed(1) == (NodeGpus{1, 0, 0, 0}));
  cr_expect(free.take_packed(0) == (NodeGpus{0, 0, 0, 0}));
}

Test(packing, takes_the_nodes_with_most) {
  FreeGpus free({.nodes = 3, .gpus_per_node = 4});
  free.take({1, 0, 2});
  cr_expect(free.take_most_free(2) == (NodeGpus{0, 2, 0}));
  cr_expect(free.take_most_free(4) == (NodeGpus{3, 1, 0}), "all of one before the next");
  cr_expect(free.take_most_free(3) == (NodeGpus{0, 1, 2}));
}

Test(packing, random_ones_take_the_fewest_nodes) {
  std::mt19937 random(11);
  for (int run = 0; run < 2000; ++run) {
    const ClusterShape shape{.nodes = 6, .gpus_per_node = 8};
    NodeGpus held(shape.nodes);
    for (std::uint8_t& gpus : held) gpus = static_cast<std::uint8_t>(random() % 9);
    FreeGpus free(shape);
    free.take(held);
    const std::uint32_t all = shape.gpus() - sum(held);
    const std::uint32_t wanted = all == 0 ? 0 : static_cast<std::uint32_t>(random() % all) + 1;
    NodeGpus left(shape.nodes);
    std::transform(held.begin(), held.end(), left.begin(),
                   [](auto gpus) { return static_cast<std::uint8_t>(8 - gpus); });
    std::sort(left.rbegin(), left.rend());
    std::size_t fewest = 0;
    for (std::uint32_t found = 0; found < wanted; ++fewest) found += left[fewest];
    const NodeGpus taken = free.take_packed(wanted);
    cr_assert(sum(taken) == wanted && nodes(taken) == fewest);
    cr_assert(wrong_with(shape, {held, taken}, 2).empty());
  }
}

Test(packing, a_job_keeps_its_place_or_makes_room) {
  const SmallProgram program;
  const ClusterShape shape{.nodes = 2, .gpus_per_node = 4};
  SimulatedJob a = job_of(program, 2);
  SimulatedJob b = job_of(program, 1);
  const SimulatedJob c = job_of(program, 4);
  a.place(0, {2, 0}, 0);
  b.place(0, {0, 1}, 0);
  const Jobs jobs = {&a, &b, &c};
  auto placed = pack_jobs(shape, jobs, {2, 1, 3});
  cr_expect(placed[0] == a.held() && placed[1] == b.held());
  cr_expect(placed[2] == (NodeGpus{0, 3}));
  placed = pack_jobs(shape, jobs, {2, 1, 4});
  cr_expect(placed[0] == a.held() && placed[1] == (NodeGpus{1, 0}), "the emptier node's moves");
  cr_expect(placed[2] == (NodeGpus{0, 4}));
  placed = pack_jobs(shape, jobs, {2, 1, 5});
  cr_expect(placed[0] == a.held() && placed[1] == b.held() && nodes(placed[2]) == 2);
  placed = pack_jobs(shape, jobs, {0, 1, 7});
  cr_expect(sum(placed[0]) == 0 && placed[1] == b.held() && placed[2] == (NodeGpus{4, 3}));
}

Test(packing, random_jobs_fit) {
  const SmallProgram program;
  const ClusterShape shape{.nodes = 4, .gpus_per_node = 4};
  std::mt19937 random(2);
  std::vector<SimulatedJob> jobs;
  for (int j = 0; j < 6; ++j) jobs.push_back(job_of(program, 1));
  Jobs all;
  for (const SimulatedJob& job : jobs) all.push_back(&job);
  for (int run = 0; run < 2000; ++run) {
    std::uint32_t left = shape.gpus();
    std::vector<std::uint32_t> sizes(jobs.size());
    for (std::uint32_t& size : sizes)
      left -= size = static_cast<std::uint32_t>(random() % (left + 1));
    std::shuffle(sizes.begin(), sizes.end(), random);
    const auto placed = pack_jobs(shape, all, sizes);
    const std::string wrong = wrong_with(shape, placed, jobs.size());
    cr_assert(wrong.empty(), "run %d: %s", run, wrong.c_str());
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      cr_assert(sum(placed[j]) == sizes[j], "run %d", run);
      if (placed[j] != jobs[j].held()) jobs[j].place(run, placed[j], 0);
    }
  }
}

Test(tiresias, what_has_had_much_goes_behind_what_is_new) {
  const SmallProgram program;
  SimulatedJob old = job_of(program, 4);
  SimulatedJob next = job_of(program, 2);
  old.place(0, {4}, 30);
  const auto tiresias = make_tiresias({.nodes = 1, .gpus_per_node = 4});
  auto placed = tiresias->decide(4 * 3600 - 1, {&old, &next});
  cr_expect(placed[0] == (NodeGpus{4}) && sum(placed[1]) == 0, "less than 16 GPU-hours");
  placed = tiresias->decide(4 * 3600, {&old, &next});
  cr_expect(sum(placed[0]) == 0 && placed[1] == (NodeGpus{2}));
  old.place(4 * 3600, {}, 30);
  next.place(4 * 3600, {2}, 30);
  placed = tiresias->decide(5 * 3600, {&old, &next});
  cr_expect(sum(placed[0]) == 0 && placed[1] == next.held(), "it stays behind");
  const SimulatedJob last = job_of(program, 4);
  placed = tiresias->decide(5 * 3600, {&old, &last});
  cr_expect(sum(placed[0]) == 0 && placed[1] == (NodeGpus{4}));
}

Test(tiresias, smaller_jobs_pass_one_that_does_not_fit) {
  const SmallProgram program;
  const SimulatedJob a = job_of(program, 3);
  const SimulatedJob b = job_of(program, 2);
  const SimulatedJob c = job_of(program, 1);
  const auto placed = make_tiresias({.nodes = 1, .gpus_per_node = 4})->decide(0, {&a, &b, &c});
  cr_expect(sum(placed[0]) == 3 && sum(placed[1]) == 0 && sum(placed[2]) == 1);
}

Test(tiresias, fixed_sizes_have_one_queue) {
  const SmallProgram program;
  SimulatedJob old = job_of(program, 4);
  const SimulatedJob next = job_of(program, 2);
  old.place(0, {4}, 30);
  const auto placed = make_fixed_size({.nodes = 1, .gpus_per_node = 4})->decide(1e9, {&old, &next});
  cr_expect(placed[0] == (NodeGpus{4}) && sum(placed[1]) == 0);
}

Test(optimus, gives_each_gpu_to_the_job_that_gains_most) {
  const SmallProgram scales({.inside = 0.01, .between = 5});
  const SmallProgram stuck({.inside = 50, .between = 50});
  const SimulatedJob a = job_of(stuck, 1);
  const SimulatedJob b = job_of(scales, 1);
  const auto optimus = make_optimus({.nodes = 2, .gpus_per_node = 4});
  auto placed = optimus->decide(0, {&a, &b});
  cr_expect(sum(placed[0]) == 1, "more than one would make it slower");
  cr_expect(sum(placed[1]) == 4 && nodes(placed[1]) == 1, "likewise more than a node");
  // Steps take 4, 2.01, 1.41 and 1.01 s with 1 to 4 GPUs; one job has half as many left.
  SimulatedJob begun = job_of(scales, 1);
  begun.place(0, {1}, 0);
  begun.pass();
  begun.pass();
  const std::vector<std::vector<std::uint32_t>> divisions = {{1, 2}, {2, 2}, {2, 3}, {2, 4}};
  for (std::uint32_t gpus = 3; gpus <= 6; ++gpus) {
    placed = make_optimus({.nodes = 1, .gpus_per_node = gpus})->decide(0, {&begun, &b});
    cr_expect(sum(placed[0]) == divisions[gpus - 3][0] && sum(placed[1]) == divisions[gpus - 3][1],
              "%u GPUs", gpus);
  }
}

Test(optimus, gives_one_gpu_to_each_in_the_order_of_arrival) {
  const SmallProgram program;
  const SimulatedJob a = job_of(program, 4);
  const SimulatedJob b = job_of(program, 4);
  const SimulatedJob c = job_of(program, 4);
  const auto placed = make_optimus({.nodes = 1, .gpus_per_node = 2})->decide(0, {&a, &b, &c});
  cr_expect(sum(placed[0]) == 1 && sum(placed[1]) == 1 && sum(placed[2]) == 0);
}

Test(schedulers, each_keeps_to_the_cluster_and_finishes) {
  const SmallProgram scales({.inside = 0.05, .between = 0.2});
  const SmallProgram typical;
  const SmallProgram stuck({.inside = 5, .between = 20}, {.largest_gpus = 6, .largest_local = 20});
  for (const SchedulerKind& kind : scheduler_kinds())
    for (std::uint32_t seed = 0; seed < 3; ++seed)
      check_workload(kind, random_workload({&scales, &typical, &stuck}, seed));
}

Test(schedulers, a_job_of_a_class_that_was_seen_need_not_explore) {
  const SmallProgram program({.inside = 0, .between = 0});
  const SmallProgram other({.inside = 0, .between = 0});
  const ClusterShape shape{.nodes = 2, .gpus_per_node = 4};
  const SimulationTerms terms{.restart_s = 1, .round_s = 5, .at_events = true};
  const auto restarts = [&](const SmallProgram& second) {
    const auto scheduler = make_scheduler(*scheduler_kind("elastic"), shape, terms, 1);
    const Outcome outcome = simulate({{"first", 0, &program.application(), 1, 10},
                                      {"second", 10000, &second.application(), 1, 10}},
                                     *scheduler, terms);
    cr_assert(outcome.jobs[0].finish_s() < 10000);
    cr_expect(outcome.jobs[0].restarts() >= 2, "the first doubles");
    return outcome.jobs[1].restarts();
  };
  cr_expect(restarts(program) == 0);
  cr_expect(restarts(other) >= 2, "it is another program's");
}

Test(schedulers, one_of_no_name_is_refused) {
  const auto none = scheduler_kind("first");
  cr_expect(!none && none.error().text.find("tiresias") != std::string::npos);
  for (const SchedulerKind& kind : scheduler_kinds())
    cr_expect(scheduler_kind(kind.name)->description == kind.description);
}
