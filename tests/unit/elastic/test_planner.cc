// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "tests/unit/elastic/planner_world.h"

using namespace bellows;
using namespace bellows::planner_test;

Test(planner, a_job_alone_explores_by_doubling) {
  World world;
  world.add(1, 2, true);
  world.all_report();
  cr_expect(world.planned(1) == 4);
  cr_expect(world.reason(1) == "grows");
}

Test(planner, a_job_that_saves_does_not_grow_before_the_save_is_complete) {
  World world;
  world.add(1, 4, true, "a", "2-8");
  world.all_report();
  const auto say_saving = [&](bool saving) {
    RunReport report = running(world.cluster.all[1]);
    report.saving = saving;
    cr_assert(world.book.take(report, world.cluster.all[1].uid, world.time).ok());
  };
  say_saving(true);
  cr_expect(world.planned(1) == 4);
  say_saving(false);
  cr_expect(world.planned(1) == 8);
  say_saving(true);
  world.time += std::chrono::seconds(61);
  say_saving(true);
  cr_expect(world.planned(1) == 8, "not for ever");
  say_saving(false);
  // Others' GPUs are not its own for as long as it says that it saves.
  say_saving(true);
  world.add(2, 6, false, "a", "6-7");
  world.note();
  cr_expect(world.planned(1) == 2);
}

Test(planner, a_job_that_was_seen_not_to_scale_keeps_its_size) {
  World world;
  world.add(1, 2, true);
  world.note();
  world.report(1, 0.1);
  cr_expect(world.planned(1) == 4);
  SlurmJob& job = world.cluster.all[1];
  job.nodes = {{"n1", 4, 4}};
  job.asked.tres_per_job = spell_gpus(4);
  world.book.note_given(1, 4, true, 1000);
  world.note();
  world.report(1, 0.1);
  cr_expect(world.planned(1) <= 4);
}

Test(planner, a_job_with_a_range_gets_its_batch_with_its_size) {
  World world;
  SlurmJob& job = world.add(1, 2, true);
  const std::string plain = job.admin_comment;
  job.admin_comment += " batch=64-512";
  world.note();
  world.report(1, 0.1, 64);
  cr_expect(world.plan().lines[0].batch == 64, "nobody knows what a larger one is worth");
  world.report(1, 0.1, 64, 1 << 20);
  cr_expect(world.planned(1) == 4);
  cr_expect(world.plan().lines[0].batch == 128);
  job.admin_comment = plain;
  cr_expect(world.planned(1) == 4);
  cr_expect(world.plan().lines[0].batch == 0, "widening is its user's word");
}

Test(planner, the_silent_keep_what_they_have) {
  World world;
  world.add(1, 2, true);
  world.note();
  cr_expect(world.planned(1) == 2);
  cr_expect(world.reason(1).find("silent") != std::string::npos);
  world.report(1, 0.1);
  world.time += std::chrono::seconds(16);
  cr_expect(world.planned(1) == 2);
}

Test(planner, one_gives_up_gpus_for_another_that_waits) {
  World world;
  world.add(1, 8, true);
  world.add(2, 2, false);
  world.all_report();
  cr_expect(world.planned(1) < 8);
  cr_expect(world.planned(2) > 0);
  cr_expect(world.planned(1) + world.planned(2) <= 8);
}

Test(planner, a_running_job_is_never_stopped) {
  World world;
  world.add(1, 4, true, "a", "4-8");
  world.add(2, 4, true, "a", "4-8");
  world.add(3, 4, false, "a", "4-8");
  world.all_report();
  cr_expect(world.planned(1) == 4);
  cr_expect(world.planned(2) == 4);
  cr_expect(world.planned(3) == 0);
}

Test(planner, what_others_wait_for_is_not_handed_out) {
  World world;
  world.add(1, 2, true);
  world.cluster.add(5, 6, false, "");
  world.cluster.all[5].times.submit = 990;
  world.cluster.all[5].times.begin = 990;
  world.all_report();
  cr_expect(world.planned(1) == 2);
  // A plain job that needs less leaves the rest.
  world.cluster.all[5].asked.tres_per_job = spell_gpus(4);
  cr_expect(world.planned(1) == 4);
}

Test(planner, elastic_jobs_make_room_for_one_that_has_waited_long_enough) {
  World world;
  world.add(1, 8, true);
  world.cluster.add(5, 4, false, "");
  world.all_report();
  world.make_room = 200;
  cr_expect(world.planned(1) == 8);
  world.make_room = 50;
  cr_expect(world.planned(1) <= 4);
  world.make_room.reset();
  cr_expect(world.planned(1) == 8);
}

Test(planner, a_guarantee_comes_back_from_who_borrowed_it) {
  World world;
  world.terms.tenants["b"] = {.guarantee = {.any = 1, .of_type = {{"", 6}}}};
  world.terms.tenants["a"] = {.guarantee = {.any = 2, .of_type = {}}};
  world.add(1, 8, true, "a");
  world.add(2, 4, false, "b");
  world.all_report();
  cr_expect(world.planned(1) <= 4);
  cr_expect(world.planned(2) == 4);
}

Test(planner, a_limit_holds) {
  World world;
  world.terms.tenants["a"].limit = 3;
  world.add(1, 2, true, "a");
  world.all_report();
  cr_expect(world.planned(1) == 3);
}

Test(planner, a_limit_counts_what_the_tenant_holds_elsewhere) {
  World world;
  world.terms.tenants["a"].limit = 5;
  world.add(1, 2, true, "a");
  // It has one size only, so bellowsd does not move it.
  world.add(2, 2, true, "a", "2");
  world.all_report();
  cr_expect(world.planned(1) == 3);
  world.terms.tenants["a"].limit = 8;
  cr_expect(world.planned(1) == 4);
}

Test(planner, the_gpus_of_a_pools_members_are_taken) {
  World world;
  world.add(1, 4, true, "a");
  world.all_report();
  cr_expect(world.planned(1) == 8);
  world.cluster.add(2, 3, true, "bellows/1 tenant=a gpus=3 ckpt=/c pool=web");
  cr_expect(world.planned(1) == 5);
  cr_expect(world.planned(2) == UINT32_MAX);
  world.terms.tenants["a"].limit = 7;
  cr_expect(world.planned(1) == 4);
}

Test(planner, one_tenants_lies_leave_the_others_share) {
  World world;
  world.add(1, 4, true, "a");
  world.add(2, 4, true, "b");
  world.note();
  world.report(1, 0.1);
  world.report(2, 0.1);
  const std::uint32_t honest = world.planned(2);
  for (int i = 0; i < 50; ++i) world.report(1, 1e-9);
  cr_expect(world.planned(2) == honest);
}

Test(planner, a_job_on_its_way_back_keeps_its_room) {
  World world;
  world.add(1, 4, true);
  SlurmJob& back = world.add(2, 4, false);
  back.restarts = 1;
  back.reason = "BeginTime";
  back.times.begin = 1015;
  world.all_report();
  cr_expect(world.planned(1) == 4);
  cr_expect(world.planned(2) == 4);
  cr_expect(world.reason(2) == "starts by itself");
  back.times.begin = 1300;
  cr_expect(world.planned(1) == 8);
  // Another set it back to two of the six GPUs that it has not given up yet.
  world.cluster.all[1].nodes = {{"n1", 2, 2}};
  world.cluster.all[1].asked.tres_per_job = spell_gpus(2);
  world.book.note_given(1, 2, true, 1000);
  world.note();
  world.report(1, 0.2);
  back.times.begin = 0;
  back.completing = true;
  back.nodes = {{"n1", 2, 2}, {"n2", 4, 4}};
  back.asked.tres_per_job = spell_gpus(2);
  cr_expect(world.planned(1) == 2);
  back.completing = false;
  cr_expect(world.planned(1) > 2);
}

Test(planner, room_is_made_for_the_size_that_a_user_chose) {
  World world;
  world.add(1, 8, true);
  SlurmJob& waits = world.add(2, 2, false);
  world.all_report();
  waits.asked.tres_per_job = spell_gpus(5);
  world.all_report();
  cr_expect(world.planned(2) == 5);
  cr_expect(world.planned(1) <= 3);
}

Test(planner, a_job_for_which_no_room_can_be_made_shrinks_nobody) {
  World world;
  world.add(1, 4, true, "a", "2-8");
  world.cluster.add(5, 8, false, "");
  world.all_report();
  world.make_room = 50;
  cr_expect(world.planned(1) == 4, "the job that waits needs all nodes");
  world.cluster.add(6, 5, false, "");
  cr_expect(world.planned(1) <= 3);
}

Test(planner, gpus_of_another_partitions_elastic_jobs_are_not_free) {
  World world;
  for (SlurmNode& node : world.cluster.all_nodes) node.partitions = {"main", "other"};
  world.add(1, 2, true);
  world.add(2, 4, true).partition = "other";
  world.all_report();
  const auto pools = world.pools();
  cr_assert(pools.size() == 2);
  cr_expect(pools[0].partition == "main" && pools[0].taken == 4);
}

Test(planner, who_waits_in_several_partitions_waits_in_each) {
  World world;
  world.add(1, 2, true);
  SlurmJob& plain = world.cluster.add(5, 0, false, "");
  plain.partition = "other,main";
  plain.asked.tres_per_job.clear();
  plain.asked.tres = "cpu=6,node=2,gres/gpu=6";
  world.all_report();
  cr_expect(world.planned(1) == 2);
  plain.asked.tres = "cpu=6,node=2";
  cr_expect(world.planned(1) == 4);
}

Test(planner, a_record_that_stands_for_several_tasks_is_left_alone) {
  World world;
  SlurmJob& job = world.add(1, 2, false);
  job.array = {.job = 1, .task = std::nullopt, .waiting = "1-9"};
  world.note();
  cr_expect(world.pools().empty());
  job.array.task = 1;
  cr_expect(!world.pools().empty());
}

Test(planner, thousands_that_wait_do_not_make_the_division_long, .timeout = 10) {
  World world;
  for (std::uint32_t n = 3; n <= 150; ++n)
    world.cluster.all_nodes.push_back({"n" + std::to_string(n), {"main"}, 4, "", true});
  for (std::uint32_t id = 1; id <= 5000; ++id) {
    SlurmJob& job = world.add(id, 2, false, "a", "1-64");
    job.priority = id;
  }
  world.note();
  const PoolPlan plan = world.plan();
  cr_expect(plan.lines.size() == 500);
  cr_expect(plan.lines.front().job.id == 5000, "as Slurm would start them");
}

Test(planner, a_size_that_slurm_did_not_start_is_not_tried_again) {
  World world;
  world.add(1, 2, true);
  world.all_report();
  world.book.note_stuck(1, 4, world.time);
  cr_expect(world.planned(1) == 3);
  world.time += std::chrono::hours(2);
  world.all_report();
  cr_expect(world.planned(1) == 4);
}

Test(planner, who_let_a_plan_fail_keeps_its_size) {
  World world;
  world.add(1, 2, true);
  world.all_report();
  world.book.note_failed(1, world.time);
  cr_expect(world.planned(1) == 2);
  cr_expect(world.reason(1).find("failed") != std::string::npos);
  world.time += std::chrono::seconds(40);
  world.all_report();
  cr_expect(world.planned(1) == 4);
}

Test(planner, nodes_that_go_away_are_not_counted) {
  World world;
  world.add(1, 2, true);
  world.add(2, 2, true);
  world.all_report();
  world.cluster.all_nodes[1].available = false;
  const PoolPlan plan = world.plan();
  cr_expect(plan.gpus == 4);
  cr_expect(world.planned(1) + world.planned(2) <= 4);
}

Test(planner, a_job_that_asks_for_more_than_is_left_gets_less) {
  World world;
  SlurmJob& job = world.add(1, 6, false);
  world.cluster.all_nodes[1].available = false;
  for (const char* reason :
       {"ReqNodeNotAvail, UnavailableNodes:n2",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
        "partitions"}) {
    job.reason = reason;
    world.note();
    cr_expect(world.planned(1) == 4);
  }
  job.asked.required_nodes = {"n2"};
  cr_expect(world.pools().empty(), "its user wants just that node");
}

Test(planner, a_run_without_gpus_is_left_alone) {
  World world;
  world.add(1, 2, true);
  world.add(2, 2, true).nodes.clear();
  world.note();
  world.report(1, 0.1);
  cr_expect(world.planned(1) == 4);
  cr_expect(world.pools().at(0).jobs.size() == 1);
}

Test(planner, the_users_choice_stands_for_a_while) {
  World world;
  world.add(1, 2, true);
  world.all_report();
  SlurmJob& job = world.cluster.all[1];
  job.nodes = {{"n1", 3, 3}};
  world.note();
  world.report(1, 0.1 * 2 / 3);
  cr_expect(world.planned(1) == 3);
  cr_expect(world.reason(1).find("user") != std::string::npos);
  world.cluster.clock += 4000;
  world.note();
  cr_expect(world.planned(1) > 3);
  // No size that anybody chose.
  job.nodes.clear();
  world.note();
  cr_expect(world.book.notes().at(1).user_resized + 4000 <= world.cluster.clock);
}

Test(planner, too_many_moves_in_an_hour_are_enough) {
  World world;
  world.add(1, 2, true);
  world.all_report();
  for (int i = 0; i < 6; ++i) world.book.note_given(1, 2, true, 1000);
  cr_expect(world.planned(1) == 2);
  world.cluster.clock += 3700;
  world.all_report();
  cr_expect(world.planned(1) == 4);
}

Test(planner, neither_right_after_a_start_nor_near_the_end) {
  World world;
  SlurmJob& job = world.add(1, 2, true);
  world.all_report();
  job.times.start = 970;
  cr_expect(world.planned(1) == 2);
  job.times.start = 900;
  job.times.end = 1200;
  cr_expect(world.planned(1) == 2);
  job.times.end = 2000;
  cr_expect(world.planned(1) == 4);
}

Test(planner, only_jobs_with_a_controller_in_their_contract_are_elastic) {
  World world;
  SlurmJob& job = world.add(1, 2, true);
  cr_expect(elastic_contract(job).has_value());
  job.reservation = "maintenance";
  cr_expect(!elastic_contract(job).has_value());
  job.reservation = "bellows-1234";
  cr_expect(elastic_contract(job).has_value());
  job.admin_comment = "bellows/1 tenant=a framework=digits:1.0 gpus=1-8 ckpt=/c";
  cr_expect(!elastic_contract(job).has_value());
}

Test(planner, a_job_that_counts_steps_is_not_moved_before_they_are_timed) {
  World world;
  const SlurmJob& job = world.add(1, 2, true);
  world.note();
  RunReport report = running(job);
  report.step = 7;
  cr_assert(world.book.take(report, job.uid, world.time).ok());
  cr_expect(world.planned(1) == 2);
  cr_expect(world.reason(1).find("its speed there is not known yet") != std::string::npos);
  report.step_s = 0.1;
  cr_assert(world.book.take(report, job.uid, world.time).ok());
  cr_expect(world.planned(1) == 4);
}

Test(planner, a_size_that_finds_no_place_is_not_planned) {
  World world;
  world.add(1, 2, true, "a", "1-2").nodes = {{"n1", 2, 2}};
  world.add(2, 2, true, "a", "1-2").nodes = {{"n2", 2, 2}};
  world.add(3, 2, true, "a", "1-4").nodes = {{"n1", 2, 2}};
  world.all_report();
  // Two are free, on the other node.
  cr_expect(world.planned(3) == 2 && world.planned(1) == 2 && world.planned(2) == 2);
}

Test(planner, what_others_keep_from_jobs_does_not_count_for_how_few_nodes_they_need) {
  World world;
  world.add(1, 2, true, "a", "2-8").nodes = {{"n1", 2, 2}};
  for (const std::uint32_t id : {2, 3}) {
    SlurmJob& plain = world.add(id, 1, true);
    plain.admin_comment = "";
    plain.nodes = {{id == 2 ? "n1" : "n2", 1, 1}};
  }
  world.all_report();
  cr_expect(world.planned(1) == 4, "no node will have four for it");
}

Test(planner, only_nodes_on_which_something_changes_are_reserved) {
  World world;
  world.cluster.all_nodes.push_back({"n3", {"main"}, 4, "", true});
  world.add(1, 2, true, "a", "2-4").nodes = {{"n1", 2, 2}};
  world.add(2, 4, true, "a", "2-4").nodes = {{"n2", 4, 4}};
  world.all_report();
  cr_expect(world.planned(1) == 4 && world.planned(2) == 4);
  cr_expect(world.plan().nodes == std::set<std::string>{"n1"}, "the other keeps what it has");
}
