// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <memory>
#include <string>

#include "elastic/daemon/transaction.h"
#include "tests/unit/elastic/fake_cluster.h"
#include "tests/unit/elastic/fake_launchers.h"

using namespace bellows;

namespace {

using Clock = Transaction::Clock;
constexpr double kStep = 0.25;

/// A plan on 8 GPUs: job 1 gives 3 of its 6 up, of which job 2 gets 2 beside the 2 that it has, and
/// job 3, which waits, one. Job 9 waits too, with a high priority, and has nothing to do with it.
struct World {
  FakeCluster cluster{2, 4};
  JobBook book;
  FakeUsers users;
  FakeLaunchers launchers{cluster, book};
  PoolPlan plan;
  std::unique_ptr<Transaction> transaction;
  bool in_bellowsd = false;

  World() {
    cluster.add(1, 6, true, elastic_contract_line());
    cluster.add(2, 2, true, elastic_contract_line());
    cluster.add(3, 1, false, elastic_contract_line());
    cluster.add(9, 1, false, "").priority = 1000;
    plan.nodes = {"n1", "n2"};
    line(1, 6, 3);
    line(2, 2, 4);
    line(3, 0, 1);
    note();
    transaction = std::make_unique<Transaction>("abc", plan, 0, cluster, cluster, book, users,
                                                Transaction::Limits());
  }
  void line(std::uint32_t id, std::uint32_t from, std::uint32_t to) {
    plan.lines.push_back({*cluster.job(id), "a", from, to, ""});
  }
  void note() {
    std::vector<SlurmJob> elastic;
    for (const auto& [id, job] : cluster.all)
      if (!job.finished() && elastic_contract(job)) elastic.push_back(*cluster.job(id));
    book.update(elastic, static_cast<std::time_t>(cluster.clock));
  }

  void step() {
    cluster.advance(kStep);
    launchers.act();
  }
  void advance() {
    in_bellowsd = true;
    transaction->advance(launchers.now(), static_cast<std::time_t>(cluster.clock));
    in_bellowsd = false;
  }
  /// Until the plan is done, `limit` seconds at most.
  bool carry_out(double limit) {
    for (const double end = cluster.clock + limit; cluster.clock < end; step()) {
      advance();
      if (transaction->done()) return true;
    }
    return false;
  }
  /// Before its call to Slurm of this number, counted from 1, bellowsd stands still for so long.
  void stand_still_at(int call, double seconds) {
    cluster.before_call = [this, call, seconds, made = 0](const std::string&) mutable {
      if (!in_bellowsd || ++made != call) return;
      in_bellowsd = false;
      launchers.unheard = true;
      for (const double end = cluster.clock + seconds; cluster.clock < end;) step();
      launchers.unheard = false;
      in_bellowsd = true;
    };
  }
  std::uint32_t held(std::uint32_t id) { return cluster.all[id].gpus(); }
  bool runs(std::uint32_t id) { return cluster.all[id].state == SlurmState::running; }
};

}  // namespace

Test(transaction, all_jobs_get_their_sizes_and_nobody_steps_between) {
  World world;
  cr_assert(world.carry_out(60), "%s", world.transaction->trouble().c_str());
  cr_expect(world.held(1) == 3 && world.held(2) == 4 && world.held(3) == 1);
  cr_expect(!world.runs(9));
  cr_expect(world.cluster.held.empty());
  for (const auto& [id, job] : world.cluster.all) cr_expect(job.reservation.empty());
  cr_expect(world.transaction->trouble().empty(), "%s", world.transaction->trouble().c_str());
  cr_expect(world.transaction->took().value_or(std::chrono::seconds(99)).count() < 8);
  cr_expect(world.cluster.over_capacity == 0);
  cr_expect(world.cluster.held_by_slurm == 0, "a reservation was deleted under its jobs");
}

Test(transaction, without_a_reservation_nothing_is_ordered) {
  World world;
  world.cluster.before_call = [&](const std::string& call) {
    world.cluster.silent = call == "reserve";
  };
  cr_assert(world.carry_out(200));
  cr_expect(world.launchers.orders.empty());
  cr_expect(world.held(1) == 6);
}

Test(transaction, one_that_refuses_to_shrink_lets_nobody_grow_on_its_account) {
  World world;
  world.launchers.refuse.insert(1);
  cr_assert(world.carry_out(120));
  cr_expect(world.held(1) == 6 && world.held(2) == 2);
  cr_expect(world.runs(1) && world.runs(2) && !world.runs(3));
  cr_expect(world.cluster.over_capacity == 0);
}

Test(transaction, one_that_does_not_answer_is_left_alone) {
  World world;
  world.launchers.silent.insert(1);
  cr_assert(world.carry_out(120));
  cr_expect(world.held(1) == 6 && world.held(2) == 2);
  cr_expect(world.cluster.held.empty());
  // It wakes up, and the order is gone.
  world.launchers.silent.clear();
  for (int i = 0; i < 100; ++i) world.step();
  cr_expect(world.held(1) == 6);
}

Test(transaction, a_job_that_ends_meanwhile_is_no_trouble) {
  World world;
  for (int i = 0; i < 6; ++i) {
    world.advance();
    world.step();
  }
  world.cluster.end(2);
  cr_assert(world.carry_out(120));
  cr_expect(world.held(1) == 3 && world.runs(1) && world.runs(3));
  cr_expect(world.cluster.held.empty());
}

Test(transaction, a_job_that_ends_before_it_answers_makes_room_at_once) {
  World world;
  world.launchers.silent.insert(1);
  world.advance();
  world.step();
  world.cluster.end(1);
  cr_assert(world.carry_out(10), "nobody waits for its answer");
  cr_expect(world.held(2) == 4 && world.held(3) == 1);
}

Test(transaction, a_job_that_another_requeues_before_it_answers_is_left_alone) {
  World world;
  world.launchers.silent.insert(1);
  world.advance();
  world.step();
  cr_assert(world.cluster.requeue(1).ok());
  cr_assert(world.carry_out(10));
  cr_expect(world.held(2) == 2);
}

Test(transaction, a_job_that_slurm_does_not_requeue_goes_on) {
  World world;
  world.cluster.not_requeued.insert(2);
  cr_assert(world.carry_out(120));
  cr_expect(world.runs(1) && world.held(1) == 3 && world.runs(2) && world.held(2) == 2);
}

/// bellowsd dies after each of its calls to Slurm, and slurmctld goes on.
Test(transaction, whenever_bellowsd_dies_every_job_goes_on_within_half_a_minute, .timeout = 60) {
  for (int calls = 0; calls < 60; ++calls) {
    World world;
    // With bellowsd goes its reservation: one that waits with a higher priority would start then.
    world.cluster.end(9);
    world.cluster.completes_after = 9;
    int made = 0;
    bool dead = false;
    world.cluster.before_call = [&](const std::string&) {
      if (++made > calls) dead = true;
    };
    for (int i = 0; i < 240 && !dead; ++i) {
      world.cluster.before_call = nullptr;
      world.step();
      world.cluster.before_call = [&](const std::string&) {
        if (++made > calls) dead = world.cluster.silent = true;
      };
      world.advance();
      if (world.transaction->done()) break;
    }
    world.transaction.reset();
    world.cluster.before_call = nullptr;
    world.cluster.silent = false;
    for (int i = 0; i < 120; ++i) world.step();
    for (const std::uint32_t id : {1U, 2U}) {
      cr_expect(world.runs(id), "after %d calls job %u does not run", calls, id);
      const PlanLine& line = world.plan.lines[id - 1];
      cr_expect(world.held(id) == line.from || world.held(id) == line.to,
                "after %d calls job %u has %u GPUs", calls, id, world.held(id));
      cr_expect(world.cluster.all[id].priority > 0);
    }
    cr_expect(world.cluster.over_capacity == 0);
    cr_assert(clear_reservations(world.cluster, world.cluster).ok());
    cr_expect(world.cluster.held.empty());
    for (const auto& [id, job] : world.cluster.all) cr_expect(job.reservation.empty());
  }
}

Test(transaction, a_slurmctld_that_is_silent_for_a_while_only_delays) {
  for (int calls = 1; calls < 40; ++calls) {
    World world;
    int made = 0;
    bool advancing = false;
    world.cluster.before_call = [&](const std::string&) {
      if (!advancing) return;
      ++made;
      world.cluster.silent = made >= calls && made < calls + 5;
    };
    bool done = false;
    for (int i = 0; i < 1200 && !done; ++i) {
      world.step();
      advancing = true;
      world.advance();
      advancing = false;
      world.cluster.silent = false;
      done = world.transaction->done();
    }
    cr_expect(done, "silent at call %d", calls);
    for (int i = 0; i < 120; ++i) world.step();
    cr_expect(world.runs(1) && world.runs(2), "silent at call %d", calls);
    cr_expect(world.cluster.over_capacity == 0);
  }
}

Test(transaction, a_reservation_that_ends_before_the_orders_is_made_again) {
  World world;
  world.stand_still_at(1, 20);
  cr_assert(world.carry_out(60), "%s", world.transaction->trouble().c_str());
  cr_expect(world.transaction->trouble().empty(), "%s", world.transaction->trouble().c_str());
  cr_expect(world.held(1) == 3 && world.held(2) == 4 && world.held(3) == 1);
  cr_expect(!world.runs(9), "it stepped between");
  cr_expect(world.cluster.held.empty());
}

/// As a job that has lost a node, of which something may still run there.
Test(transaction, a_start_that_slurm_has_set_stands) {
  World world;
  world.cluster.end(9);
  std::time_t begin = 0;
  world.cluster.before_call = [&](const std::string& call) {
    SlurmJob& job = world.cluster.all[1];
    if (!world.in_bellowsd || call != "job" || begin != 0) return;
    begin = static_cast<std::time_t>(world.cluster.clock) + 121;
    ++job.restarts;
    job.state = SlurmState::pending;
    job.nodes.clear();
    job.times.begin = begin;
  };
  cr_assert(world.carry_out(200));
  for (int i = 0; i < 400; ++i) world.step();
  cr_expect(begin != 0 && world.cluster.all[1].times.start >= begin);
  cr_expect(world.runs(1) && world.held(1) == 3);
}

/// Launchers wait for 10 s and the reservation holds for 15, so both are over when it goes on.
Test(transaction, whenever_bellowsd_stands_still_every_job_goes_on, .timeout = 60) {
  for (int calls = 1; calls < 60; ++calls) {
    World world;
    world.cluster.end(9);
    world.cluster.completes_after = 9;
    world.stand_still_at(calls, 20);
    cr_expect(world.carry_out(200), "stood still at call %d", calls);
    for (int i = 0; i < 120; ++i) world.step();
    for (const std::uint32_t id : {1U, 2U, 3U}) {
      const PlanLine& line = world.plan.lines[id - 1];
      cr_expect(world.runs(id), "at call %d: job %u does not run", calls, id);
      cr_expect(world.held(id) == line.from || world.held(id) == line.to,
                "at call %d: job %u has %u GPUs", calls, id, world.held(id));
      cr_expect(world.cluster.all[id].restarts <= 2, "at call %d: job %u", calls, id);
      cr_expect(world.cluster.all[id].reservation.empty());
    }
    cr_expect(world.cluster.held.empty(), "at call %d", calls);
    cr_expect(world.cluster.over_capacity == 0 && world.cluster.held_by_slurm == 0);
  }
}

Test(transaction, a_size_that_slurm_does_not_start_is_given_up) {
  World world;
  world.cluster.most_of_a_job = 3;
  cr_assert(world.carry_out(200));
  cr_expect(world.runs(1) && world.runs(2) && world.runs(3));
  cr_expect(world.held(1) == 3 && world.held(2) == 2 && world.held(3) == 1);
  cr_expect(world.cluster.held.empty());
  cr_expect(world.book.notes().at(2).too_many == 4, "it is not tried again");
}

Test(transaction, no_size_that_slurm_does_not_start_is_tried_again) {
  World world;
  world.cluster.most_of_a_job = 0;
  cr_assert(world.carry_out(300));
  const auto notes = world.book.notes();
  cr_expect(notes.at(1).too_many == 3, "it was to shrink to that");
  cr_expect(notes.at(2).too_many == 2, "neither the new size nor the old one");
  cr_expect(notes.at(3).too_many == 1);
}

Test(transaction, a_job_that_has_ended_does_not_keep_the_plan_open) {
  World world;
  for (int steps = 0; steps < 1000 && !(world.runs(1) && world.held(1) == 3); ++steps) {
    world.step();
    world.advance();
  }
  cr_assert(!world.cluster.all[1].reservation.empty());
  world.cluster.end(1);
  cr_assert(world.carry_out(8), "Slurm changes nothing of it any more");
  cr_expect(world.cluster.held.empty());
}

Test(transaction, with_whom_a_plan_fails_is_left_alone_for_a_while) {
  World world;
  world.launchers.silent.insert(1);
  cr_assert(world.carry_out(120));
  const auto once = world.book.notes().at(1).left_alone_until;
  cr_expect(once > world.launchers.now());
  world.book.note_failed(1, world.launchers.now());
  cr_expect(world.book.notes().at(1).left_alone_until - world.launchers.now() >
            once - world.launchers.now());
}

Test(transaction, what_one_reservation_refuses_does_not_keep_the_next_bellowsd_from_the_others) {
  World world;
  cr_assert(world.cluster.reserve({"bellows-one", {"n1"}, {}, 1000, 9000}).ok());
  cr_assert(world.cluster.reserve({"bellows-two", {"n2"}, {}, 1000, 9000}).ok());
  world.cluster.all[1].reservation = "bellows-one";
  world.cluster.before_call = [&, first = true](const std::string& call) mutable {
    world.cluster.silent = call == "change" && std::exchange(first, false);
  };
  cr_expect(!clear_reservations(world.cluster, world.cluster).ok());
  cr_expect(!world.cluster.held.contains("bellows-two"));
  cr_expect(clear_reservations(world.cluster, world.cluster).ok());
  cr_expect(world.cluster.held.empty());
}

Test(transaction, a_reservation_that_slurmctld_forgot_does_not_keep_its_jobs_from_starting) {
  for (int change = 1; change <= 3; ++change) {
    World world;
    world.cluster.end(9);
    world.cluster.completes_after = 9;
    double back = 0;
    // Killed before it had saved the reservation, and back before bellowsd looks after it.
    world.cluster.before_call = [&, made = 0](const std::string& call) mutable {
      if (call == "change" && world.in_bellowsd && ++made == change) {
        world.cluster.held.clear();
        back = world.cluster.clock + 3;
      }
      world.cluster.silent = world.cluster.clock < back;
    };
    cr_assert(world.carry_out(40), "before change %d: %s", change,
              world.transaction->trouble().c_str());
    cr_expect(world.runs(1) && world.runs(2), "before change %d", change);
    cr_expect(world.cluster.held.empty());
  }
}
