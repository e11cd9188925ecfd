// SPDX-License-Identifier: Apache-2.0
// What bellowsd remembers of each job.
#include "tests/unit/elastic/planner_world.h"

using namespace bellows;
using namespace bellows::planner_test;

Test(book, only_the_owner_of_a_job_speaks_for_it) {
  World world;
  const SlurmJob& job = world.add(1, 2, true);
  world.note();
  RunReport report;
  report.job = 1;
  const auto foreign = world.book.take(report, job.uid + 1, world.time);
  cr_assert(!foreign.ok());
  cr_expect(foreign.error().kind == ErrorKind::denied);
  report.job = 99;
  cr_expect(world.book.take(report, job.uid, world.time).error().kind == ErrorKind::not_found);
}

Test(book, a_new_bellowsd_counts_what_another_may_have_done) {
  World world;
  world.add(1, 2, true).restarts = 4;
  world.add(2, 2, false);
  world.note();
  cr_expect(world.book.notes().at(1).moves.size() == 5, "the job may have got an order as well");
  cr_expect(world.book.notes().at(2).moves.empty());
  // One that comes later was seen by no other.
  world.add(3, 2, true);
  world.note();
  cr_expect(world.book.notes().at(3).moves.empty());
  world.cluster.clock += 3700;
  world.note();
  cr_expect(world.book.notes().at(1).moves.empty());
}

Test(book, nothing_is_learned_of_a_size_that_the_job_does_not_have) {
  World world;
  const SlurmJob& job = world.add(1, 2, true);
  world.note();
  RunReport report = running(job);
  report.gpus = 4;
  report.step_s = 0.1;
  cr_expect(world.book.take(report, job.uid, world.time).ok());
  cr_expect(!world.book.notes().at(1).speed.seen());
  report.gpus = 2;
  cr_expect(world.book.take(report, job.uid, world.time).ok());
  cr_expect(world.book.notes().at(1).speed.seen());
}

Test(book, a_size_that_a_launcher_took_alone_is_not_its_users) {
  World world;
  SlurmJob& job = world.add(1, 4, true);
  world.note();
  world.book.give_order(1, {"p-1", 2, 0});
  world.book.withdraw_order(1);
  job.nodes = {{"n1", 2, 2}};
  ++job.restarts;
  world.note();
  cr_expect(world.book.notes().at(1).user_resized == 0);
  job.nodes = {{"n1", 3, 3}};
  world.note();
  cr_expect(world.book.notes().at(1).user_resized != 0);
}

Test(book, an_order_is_for_one_run_and_ends_with_its_answer) {
  World world;
  const SlurmJob& job = world.add(1, 2, true);
  world.note();
  world.book.give_order(1, {"p-1", 4, 0});
  RunReport report;
  report.job = 1;
  report.restarts = 3;
  cr_expect(!world.book.take(report, job.uid, world.time)->order);
  report.restarts = job.restarts;
  cr_expect(world.book.take(report, job.uid, world.time)->order->id == "p-1");
  report.answer = OrderAnswer{"p-0", true, std::nullopt, ""};
  cr_expect(world.book.take(report, job.uid, world.time)->order.has_value());
  report.answer = OrderAnswer{"p-1", true, std::nullopt, ""};
  cr_expect(!world.book.take(report, job.uid, world.time)->order);
  cr_expect(world.book.answer_of(1)->committed);
}

Test(book, an_order_that_was_withdrawn_too_late_counts_as_a_move) {
  World world;
  world.note();
  SlurmJob& job = world.add(1, 2, true);
  world.note();
  world.book.give_order(1, {"x", 4, 0});
  world.book.withdraw_order(1);
  ++job.restarts;
  world.note();
  cr_expect(world.book.notes().at(1).moves.size() == 1);
  world.book.give_order(1, {"y", 4, 0});
  world.book.note_given(1, 4, true, 1000);
  ++job.restarts;
  world.note();
  cr_expect(world.book.notes().at(1).moves.size() == 2, "once");
  ++job.restarts;
  world.note();
  cr_expect(world.book.notes().at(1).moves.size() == 2, "a fault is no move");
}

Test(book, a_run_that_lost_a_node_is_no_choice_of_its_user) {
  World world;
  SlurmJob& job = world.add(1, 6, true);
  world.note();
  job.nodes = {{"n1", 4, 4}};
  world.note();
  cr_expect(world.book.notes().at(1).user_resized == 0);
}

Test(book, a_job_that_is_not_seen_for_a_moment_is_remembered) {
  World world;
  SlurmJob& job = world.add(1, 2, true);
  world.all_report();
  job.state = SlurmState::timeout;
  world.book.update({}, 1001);
  cr_expect(world.book.notes().contains(1));
  world.book.update({}, 1100);
  cr_expect(!world.book.notes().contains(1));
}
