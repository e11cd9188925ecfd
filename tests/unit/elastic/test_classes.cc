// SPDX-License-Identifier: Apache-2.0
// What bellowsd takes from one job for others of its class, and from whom it takes nothing.
#include <criterion/criterion.h>

#include <string>
#include <vector>

#include "tests/unit/elastic/planner_world.h"

using namespace bellows;

TestSuite(classes, .timeout = 20);

namespace {

std::string contract(const std::string& tenant, const std::string& more) {
  return "bellows/1 tenant=" + tenant +
         " framework=digits:1.0 gpus=1-8 ckpt=/c controller=@ctl:6830" + more;
}

/// Two nodes with 4 GPUs each, on which jobs are seen one after another.
struct World {
  FakeCluster cluster{2, 4};
  JobBook book;
  PlanTerms terms;
  JobBook::Clock::time_point time{std::chrono::seconds(1000)};
  std::uint32_t last = 0;

  World() { terms.objective.restart_s = 2; }

  void note() {
    std::vector<SlurmJob> elastic;
    for (const auto& [id, job] : cluster.all)
      if (!job.finished() && elastic_contract(job)) elastic.push_back(job);
    book.update(elastic, static_cast<std::time_t>(cluster.clock));
  }

  void report(const SlurmJob& job, double step_s, std::uint64_t batch = 64) {
    RunReport report = planner_test::running(job);
    report.nodes = job.gpus() > 4 ? 2 : 1;
    report.step_s = step_s;
    report.batch = batch;
    cr_assert(book.take(report, job.uid, time).ok());
  }

  void end(SlurmJob& job) {
    job.state = SlurmState::completed;
    job.nodes.clear();
  }

  SlurmJob& add(uid_t uid, const std::string& tenant, const std::string& name,
                const std::string& more = "") {
    for (auto& [id, job] : cluster.all) end(job);
    SlurmJob& job = cluster.add(++last, 2, true, contract(tenant, more));
    job.uid = uid;
    job.name = name;
    note();
    return job;
  }

  /// It was at 2, 4 and 8 GPUs, which scale perfectly, or not beyond 4.
  void run_everywhere(SlurmJob& job, std::uint64_t batch = 64, bool scales = true) {
    for (const std::uint32_t gpus : {2u, 4u, 8u}) {
      job.nodes = {{"n1", gpus, gpus}};
      job.asked.tres_per_job = spell_gpus(gpus);
      book.note_given(job.id, gpus, true, 1000);
      note();
      report(job, 1.0 / (scales ? gpus : std::min(gpus, 4u)), batch);
    }
    end(job);
  }

  PlanLine line(const SlurmJob& job) {
    auto state = read_cluster(cluster, cluster);
    cr_assert(state.ok());
    const auto pools = pools_of(*state, 600);
    cr_assert(pools.size() == 1, "%zu pools", pools.size());
    auto plan =
        plan_gpus(pools[0], book.notes(), terms, static_cast<std::time_t>(cluster.clock), time);
    cr_assert(plan.ok());
    for (const PlanLine& line : plan->lines)
      if (line.job.id == job.id) return line;
    cr_assert_fail("no line");
    return {};
  }

  /// The size of a new job that was seen at 2 GPUs.
  std::uint32_t planned(SlurmJob& job, std::uint64_t batch = 64) {
    report(job, 0.5, batch);
    return line(job).to;
  }
};

}  // namespace

Test(classes, a_second_job_need_not_double) {
  World world;
  world.run_everywhere(world.add(1000, "a", "train"));
  SlurmJob& job = world.add(1000, "a", "train");
  cr_expect(world.planned(job) == 8);
  const PlanLine line = world.line(job);
  cr_expect(line.from_class && line.reason == "grows, by the speed of its class there", "%s",
            line.reason.c_str());
}

Test(classes, a_second_job_does_not_try_what_brought_the_first_nothing) {
  World world;
  world.run_everywhere(world.add(1000, "a", "train"), 64, false);
  cr_expect(world.planned(world.add(1000, "a", "train"), 64) == 4);
}

Test(classes, a_job_that_waits_may_start_with_what_its_class_makes_use_of) {
  World world;
  world.run_everywhere(world.add(1000, "a", "train"));
  SlurmJob& job = world.add(1000, "a", "train");
  job.state = SlurmState::pending;
  job.nodes.clear();
  world.note();
  cr_expect(world.line(job).to == 8);
  World alone;
  SlurmJob& first = alone.add(1000, "a", "train");
  first.state = SlurmState::pending;
  first.nodes.clear();
  alone.note();
  cr_expect(alone.line(first).to == 2);
}

Test(classes, other_users_tenants_and_names_are_other_classes) {
  World world;
  world.run_everywhere(world.add(1000, "a", "train"));
  cr_expect(world.planned(world.add(1001, "a", "train")) == 4, "another user");
  cr_expect(world.planned(world.add(1000, "b", "train")) == 4, "another tenant");
  cr_expect(world.planned(world.add(1000, "a", "other")) == 4, "another name");
  SlurmJob& elsewhere = world.add(1000, "a", "train");
  cr_expect(world.planned(elsewhere) == 8, "and the same is the same");
}

Test(classes, one_that_is_said_counts_whatever_the_names) {
  World world;
  const auto said = [&world](const char* name, const std::string& job_class) -> SlurmJob& {
    return world.add(1000, "a", name, " class=" + job_class);
  };
  world.run_everywhere(said("lr-0.1", "bert"));
  cr_expect(world.planned(said("lr-0.2", "bert")) == 8);
  cr_expect(world.planned(said("lr-0.1", "gpt")) == 4);
  cr_expect(world.planned(world.add(1000, "a", "bert")) == 4, "a name is none that was said");
  world.run_everywhere(said("wrap", "resnet"));
  cr_expect(world.planned(said("", "resnet")) == 8);
}

Test(classes, nothing_of_another_program_decides_on_a_jobs_batch) {
  World world;
  SlurmJob& small = world.add(1000, "a", "train.sh");
  world.run_everywhere(small, 1024);
  for (const bool noise : {false, true}) {
    SlurmJob& large = world.add(1000, "a", "train.sh");
    large.admin_comment += " batch=16-1024";
    RunReport report = planner_test::running(large);
    report.step_s = 0.5;
    report.batch = 32;
    report.noise_scale = noise ? 1 << 20 : 0;
    cr_assert(world.book.take(report, large.uid, world.time).ok());
    const PlanLine line = world.line(large);
    cr_expect(line.to > 2);
    cr_expect(line.batch == (noise ? 16 * line.to : 32), "%lu at %u",
              static_cast<unsigned long>(line.batch), line.to);
  }
}

Test(classes, gpus_of_different_types_are_different_classes) {
  World world;
  const NodeTypes types = {{"n1", "a100"}, {"n2", "v100"}};
  SlurmJob& job = world.add(1000, "a", "train");
  const auto key_on = [&](const std::string& node) {
    job.nodes = {{node, 2, 2}};
    return class_key(job, Contract(), gpu_type_of(job, types));
  };
  cr_expect(key_on("n1") != key_on("n2"));
  job.nodes.clear();
  cr_expect(gpu_type_of(job, types).empty() && gpu_type_of(job, {{"n1", "a100"}}) == "a100");
}

Test(classes, programs_that_do_not_say_their_batch_learn_alone) {
  World world;
  world.run_everywhere(world.add(1000, "a", "train"), 0);
  cr_expect(world.planned(world.add(1000, "a", "train"), 0) == 4);
}

Test(classes, jobs_without_a_name_have_nothing_in_common) {
  World world;
  for (const char* name : {"", "wrap", "sbatch"}) {
    world.run_everywhere(world.add(1000, "a", name));
    cr_expect(world.planned(world.add(1000, "a", name)) == 4, "\"%s\"", name);
  }
  const std::string longest(128, 'x');
  cr_expect(class_key(world.add(1000, "a", longest), Contract(), "").has_value());
  cr_expect(!class_key(world.add(1000, "a", longest + "x"), Contract(), "").has_value());
}

Test(classes, a_user_with_many_names_pushes_out_only_own_ones) {
  ClassBook book;
  book.at({.uid = 1, .name = "kept"}, 5);
  for (std::uint32_t i = 0; i < 10000; ++i) book.at({.uid = 2, .name = std::to_string(i)}, 10 + i);
  cr_expect(book.size() == 1 + ClassBook::kMostOfUser);
  cr_expect(book.find({.uid = 1, .name = "kept"}));
  cr_expect(book.find({.uid = 2, .name = "9999"}) && !book.find({.uid = 2, .name = "0"}));
  book.at({.uid = 2, .name = "9936"}, 20000);
  book.at({.uid = 2, .name = "new"}, 20001);
  cr_expect(book.find({.uid = 2, .name = "9936"}), "what was heard of last stays");
}

Test(classes, are_bounded_and_forgotten) {
  ClassBook book;
  for (uid_t uid = 0; uid < 5000; ++uid) book.at({.uid = uid, .name = "x"}, uid);
  cr_expect(book.size() == ClassBook::kMost);
  cr_expect(!book.find({.uid = 0, .name = "x"}) && book.find({.uid = 4999, .name = "x"}));
  book.forget_before(4990 + ClassBook::kRemembered);
  cr_expect(book.size() == 10);
}

namespace {

/// Jobs of this name take so many GPU-seconds, and scale perfectly.
void let_one_finish(World& world, const char* name, int gpu_seconds, bool completed = true) {
  SlurmJob& job = world.add(1000, "a", name);
  world.run_everywhere(job);
  job.state = SlurmState::running;
  job.nodes = {{"n1", 8, 8}};
  world.note();
  world.cluster.clock += gpu_seconds / 8.0;
  world.note();
  world.end(job);
  if (completed) world.book.note_completed(job.id);
  world.cluster.clock += 61;
  world.note();
}

/// What a job alone is to have that was submitted long ago and holds half of the GPUs.
std::uint32_t planned_alone(World& world, const char* name) {
  world.terms.objective.restart_s = 100;
  SlurmJob& job = world.add(1000, "a", name);
  job.nodes = {{"n1", 4, 4}};
  job.times.submit -= 100000;
  world.book.note_given(job.id, 4, false, 1000);
  world.note();
  world.report(job, 0.25);
  return world.line(job).to;
}

}  // namespace

Test(classes, a_job_of_which_little_is_left_is_not_restarted) {
  World world;
  let_one_finish(world, "short", 80);
  let_one_finish(world, "long", 400000);
  cr_expect(planned_alone(world, "short") == 4);
  cr_expect(planned_alone(world, "long") == 8);
}

Test(classes, a_job_that_was_cancelled_tells_nothing_of_what_others_take) {
  World world;
  let_one_finish(world, "short", 80, false);
  cr_expect(planned_alone(world, "short") == 8);
}

Test(classes, a_job_whose_first_runs_nobody_saw_tells_nothing_either) {
  World world;
  SlurmJob& job = world.cluster.add(++world.last, 2, true, contract("a", ""));
  job.uid = 1000;
  job.name = "short";
  job.restarts = 2;
  world.note();
  world.end(job);
  world.book.note_completed(job.id);
  world.cluster.clock += 61;
  world.note();
  cr_expect(!world.book.notes().contains(job.id));
  SlurmJob& next = world.add(1000, "a", "short");
  const auto known = world.book.notes().at(next.id).of_class;
  cr_expect(!known || !known->service_left(0));
}

Test(classes, what_a_job_has_held_is_counted) {
  World world;
  SlurmJob& job = world.add(1000, "a", "train");  // 100 s ago, with 2 GPUs
  world.cluster.clock += 50;
  world.note();
  job.nodes = {{"n1", 4, 4}, {"n2", 4, 4}};
  world.note();
  world.cluster.clock += 10;
  job.state = SlurmState::pending;
  job.nodes.clear();
  world.note();
  world.cluster.clock += 30;
  world.note();
  cr_expect(world.book.notes().at(job.id).service.gpu_seconds() == 2 * 150 + 8 * 10);
}
