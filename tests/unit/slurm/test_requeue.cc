// SPDX-License-Identifier: Apache-2.0
// The requeue road without Slurm: each party alone, and every order in which they can die.
#include <criterion/criterion.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "slurm/requeue.h"
#include "tests/unit/slurm/fake_slurm.h"

using namespace bellows;
using namespace std::chrono_literals;

TestSuite(requeue, .timeout = 60);

namespace {

using Time = RequeueRoad::Clock::time_point;

Time at(double clock) {
  return Time(std::chrono::duration_cast<RequeueRoad::Clock::duration>(
      std::chrono::duration<double>(clock)));
}

/// Walks in the fake's time; every call takes 10 ms of it.
RequeueRoad::Done walk_alone(FakeSlurm& slurm, Party party, NextRun next) {
  next.started = 900;
  slurm.before_look = [&slurm] { slurm.advance(0.01); };
  const RoadTime time{[&slurm] { return at(slurm.clock); },
                      [&slurm](std::chrono::milliseconds pause) {
                        slurm.advance(std::chrono::duration<double>(pause).count());
                      }};
  return walk(RequeueRoad(party, next, at(slurm.clock)), slurm, slurm.record, time);
}

NextRun to(std::uint32_t gpus) {
  NextRun next{.restarts = 0, .gpus_now = 4};
  next.gpus = gpus;
  return next;
}

int count(const FakeSlurm& slurm, const std::string& call) {
  return static_cast<int>(std::count(slurm.calls.begin(), slurm.calls.end(), call));
}

constexpr Party kParties[] = {Party::command, Party::launcher, Party::rescue};

}  // namespace

Test(requeue, each_party_alone_moves_the_job) {
  for (Party party : kParties) {
    FakeSlurm slurm;
    cr_expect(walk_alone(slurm, party, to(2)).end == RoadEnd::moved);
    slurm.advance(20);
    cr_expect(slurm.starts == 1 && !slurm.lost && slurm.record.restarts == 1);
    cr_expect(slurm.record.gpus() == 2);
    cr_expect(count(slurm, "change") == 1, "size and start time are one update");
  }
}

Test(requeue, an_answer_that_is_lost_does_no_harm) {
  for (Party party : kParties)
    for (bool done : {false, true})
      for (int silent = 1; silent < 8; ++silent) {
        FakeSlurm slurm;
        slurm.silent_calls = silent;
        slurm.silent_but_done = done;
        const auto end = walk_alone(slurm, party, to(2)).end;
        cr_expect(end == RoadEnd::moved || end == RoadEnd::found, "%d silent: %d", silent,
                  static_cast<int>(end));
        slurm.advance(30);
        cr_expect(slurm.starts == 1 && !slurm.lost && slurm.record.restarts == 1 &&
                      slurm.record.gpus() == 2,
                  "%d silent", silent);
      }
}

Test(requeue, a_size_that_slurm_refuses_costs_nothing_but_the_size) {
  for (Party party : kParties) {
    for (const bool takes_what_it_refuses : {false, true}) {
      FakeSlurm slurm;
      slurm.refused_sizes = {2};
      slurm.takes_what_it_refuses = takes_what_it_refuses;
      const auto done = walk_alone(slurm, party, to(2));
      cr_expect(done.end == RoadEnd::kept_size && done.text == "Requested node configuration");
      slurm.advance(30);
      cr_expect(slurm.starts == 1 && !slurm.lost && slurm.record.gpus() == 4);
    }
  }
}

Test(requeue, the_launcher_waits_for_slurmctld_and_the_command_does_not) {
  FakeSlurm slurm;
  slurm.silent_calls = 500;
  cr_expect(walk_alone(slurm, Party::launcher, to(2)).end == RoadEnd::moved);
  FakeSlurm away;
  away.silent_calls = 500;
  const double begun = away.clock;
  cr_expect(walk_alone(away, Party::command, to(2)).end == RoadEnd::gave_up);
  const std::chrono::duration<double> took(away.clock - begun);
  cr_expect(took < kHandOver, "before the launcher begins");
}

Test(requeue, a_held_job_needs_nothing_else) {
  for (Party party : {Party::command, Party::launcher}) {
    FakeSlurm slurm;
    NextRun next = to(4);
    next.hold = true;
    cr_expect(walk_alone(slurm, party, next).end == RoadEnd::moved);
    cr_expect(count(slurm, "change") == 0);
    slurm.advance(300);
    cr_expect(slurm.starts == 0 && slurm.record.priority == 0);
  }
}

Test(requeue, a_job_that_is_held_while_it_runs_gets_its_new_size) {
  for (Party party : kParties) {
    FakeSlurm slurm;
    slurm.record.priority = 0;
    cr_expect(walk_alone(slurm, party, to(2)).end == RoadEnd::moved);
    slurm.advance(30);
    cr_expect(slurm.starts == 0 && slurm.record.requested_gpus() == 2);
    cr_expect(slurm.record.priority == 0 && count(slurm, "requeue") == 1);
  }
}

Test(requeue, a_job_that_lost_a_node_is_asked_for_the_size_that_it_has) {
  // It runs on 3 of the 4 GPUs for which it asks, and is to move to 3.
  FakeSlurm slurm;
  NextRun next = to(3);
  next.gpus_now = 3;
  cr_expect(walk_alone(slurm, Party::launcher, next).end == RoadEnd::moved);
  slurm.advance(30);
  cr_expect(slurm.record.gpus() == 3);
}

Test(requeue, a_halt_holds_the_job_also_when_somebody_else_requeued_it) {
  for (Party party : {Party::command, Party::launcher}) {
    FakeSlurm slurm;
    NextRun next = to(4);
    next.hold = true;
    slurm.before_call = [&slurm](const std::string& call) {
      if (call == "requeue_held") (void)slurm.requeue_running(7);
    };
    cr_expect(walk_alone(slurm, party, next).end == RoadEnd::moved);
    slurm.advance(300);
    cr_expect(slurm.starts == 0 && slurm.record.priority == 0 && slurm.record.restarts == 1);
  }
}

Test(requeue, a_start_time_of_the_command_is_left_as_it_is) {
  FakeSlurm slurm;
  slurm.batch_ends_after = 3;
  cr_expect(walk_alone(slurm, Party::command, to(2)).end == RoadEnd::moved);
  const std::time_t begin = slurm.record.times.begin;
  cr_assert(slurm.record.completing && begin > 0);
  cr_expect(walk_alone(slurm, Party::launcher, to(2)).end == RoadEnd::found);
  cr_expect(slurm.record.times.begin == begin && count(slurm, "change") == 1);
}

Test(requeue, the_command_waits_until_the_launcher_has_revived_the_job) {
  FakeSlurm slurm;
  slurm.record.state = SlurmState::preempted;
  int looks = 0;
  slurm.before_call = [&](const std::string& call) {
    if (call == "job" && ++looks == 4) (void)slurm.requeue(7);
  };
  cr_expect(walk_alone(slurm, Party::command, to(2)).end == RoadEnd::found);
  slurm.advance(30);
  cr_expect(slurm.starts == 1 && slurm.record.gpus() == 2);
}

namespace {

/// Each change takes so many seconds and gets no answer.
void hold_changes_back(FakeSlurm& slurm, double seconds) {
  slurm.before_call = [&slurm, seconds](const std::string& call) {
    if (call != "change") return;
    slurm.advance(seconds);
    slurm.silent_calls = 1;
  };
}

}  // namespace

Test(requeue, a_launcher_does_not_wait_for_what_waits_for_its_own_end) {
  FakeSlurm slurm;
  slurm.batch_ends_after = 1e6;
  hold_changes_back(slurm, 5);
  const double begun = slurm.clock;
  cr_expect(walk_alone(slurm, Party::launcher, to(4)).end == RoadEnd::as_it_is);
  cr_expect(slurm.clock - begun < 15);
}

Test(requeue, a_rescue_ends_in_time) {
  // Its views have to end, whatever slurmctld does.
  FakeSlurm slurm;
  hold_changes_back(slurm, 29);
  const double begun = slurm.clock;
  cr_expect(walk_alone(slurm, Party::rescue, to(2)).end == RoadEnd::as_it_is);
  cr_expect(slurm.clock - begun < 300);
}

Test(requeue, what_has_ended_is_revived_by_its_launcher_only) {
  for (SlurmState state : {SlurmState::timeout, SlurmState::preempted}) {
    FakeSlurm slurm;
    slurm.record.state = state;
    cr_expect(walk_alone(slurm, Party::command, to(2)).end == RoadEnd::ended);
    cr_expect(walk_alone(slurm, Party::rescue, to(2)).end == RoadEnd::ended);
    cr_expect(walk_alone(slurm, Party::launcher, to(2)).end == RoadEnd::moved);
    cr_expect(count(slurm, "requeue_any") == 1);
  }
  for (SlurmState state : {SlurmState::completed, SlurmState::failed, SlurmState::cancelled})
    for (Party party : kParties) {
      FakeSlurm slurm;
      slurm.record.state = state;
      const auto done = walk_alone(slurm, party, to(2));
      cr_expect(done.end == RoadEnd::ended && done.state == state);
      cr_expect(count(slurm, "requeue") == 0 && count(slurm, "requeue_any") == 0);
    }
}

Test(requeue, slurmctlds_word_alone_is_not_trusted) {
  // It says that it requeues a job that had just come to its end.
  FakeSlurm slurm;
  NextRun next = to(2);
  next.started = 900;
  RequeueRoad road(Party::launcher, next, at(slurm.clock));
  road.looked(queued_job(*slurm.job(7u)), at(slurm.clock));
  cr_assert(std::holds_alternative<RequeueRoad::Requeue>(road.next()));
  road.requeued(Status(), at(slurm.clock));
  cr_assert(std::holds_alternative<RequeueRoad::Look>(road.next()), "it looks");
  slurm.record.state = SlurmState::timeout;
  road.looked(queued_job(*slurm.job(7u)), at(slurm.clock));
  const auto* again = std::get_if<RequeueRoad::Requeue>(&road.next());
  cr_assert(again && again->kind == RequeueKind::any, "and asks again");
}

Test(requeue, a_later_run_is_left_alone) {
  for (Party party : kParties) {
    FakeSlurm slurm;
    slurm.record.restarts = 1;
    cr_expect(walk_alone(slurm, party, to(2)).end == RoadEnd::newer_run);
    // slurmctld was killed and counts both the same.
    FakeSlurm restarted;
    restarted.record.times.start = 950;
    cr_expect(walk_alone(restarted, party, to(2)).end == RoadEnd::newer_run);
    FakeSlurm queued;
    queued.record.state = SlurmState::pending;
    queued.record.restarts = 2;
    cr_expect(walk_alone(queued, party, to(2)).end == RoadEnd::newer_run);
    for (const FakeSlurm* fake : {&slurm, &restarted, &queued})
      cr_expect(count(*fake, "requeue") == 0 && count(*fake, "change") == 0);
  }
}

Test(requeue, a_run_that_slurmctld_lost_is_outlasted) {
  for (Party party : kParties) {
    FakeSlurm slurm;
    slurm.full = true;
    slurm.record.state = SlurmState::pending;
    const auto done = walk_alone(slurm, party, to(4));
    cr_expect(done.end == RoadEnd::forgotten && (done.outlast > 0s) == (party != Party::command));
    const int least = party == Party::rescue ? requeue_clock::kAfterForgottenDeadRun
                                             : requeue_clock::kAfterForgottenRun;
    cr_expect(slurm.record.times.begin >= 1000 + least);
  }
}

Test(requeue, a_run_that_slurmctld_lost_is_outlasted_whatever_becomes_of_its_size) {
  for (Party party : {Party::launcher, Party::rescue}) {
    FakeSlurm slurm;
    slurm.full = true;
    slurm.record.state = SlurmState::pending;
    slurm.refused_sizes = {2};
    const auto done = walk_alone(slurm, party, to(2));
    cr_expect(done.end == RoadEnd::kept_size && done.outlast > 0s);
    cr_expect(done.outlast < std::chrono::seconds(slurm.record.times.begin - 1000));
  }
}

Test(requeue, another_size_than_the_old_one_is_somebodys_later_wish) {
  FakeSlurm slurm;
  slurm.record.state = SlurmState::pending;
  slurm.record.restarts = 1;
  slurm.record.asked.tres_per_job = BELLOWS_GRES "gpu:8";
  slurm.full = true;
  cr_expect(walk_alone(slurm, Party::launcher, to(2)).end == RoadEnd::found);
  cr_expect(slurm.record.requested_gpus() == 8 && slurm.record.times.begin == 1005);
  // A rescue does not know the old size, but the start time tells that the next run is settled.
  NextRun rescued = to(2);
  rescued.gpus_now = 0;
  slurm.record.times.begin = static_cast<std::time_t>(slurm.clock) + 9;
  cr_expect(walk_alone(slurm, Party::rescue, rescued).end == RoadEnd::found);
  cr_expect(slurm.record.requested_gpus() == 8);
}

Test(requeue, a_node_that_was_set_down_has_time_to_end_what_it_has_of_the_job) {
  struct Case {
    const char* what;
    std::vector<std::string> not_done;
    bool lost_node;
    std::time_t begin;  // that another has set
    std::time_t expected;
  };
  const Case cases[] = {
      {"the launcher's own node, while another completes", {"n2"}, false, 0, 1075},
      {"the only node", {}, false, 0, 1075},
      {"a node that the launcher knows to be lost", {"n1"}, true, 0, 1020},
      {"set down, and bellowsd was faster", {}, false, 1010, 1075},
      {"set down, and Slurm's own delay is long enough", {}, false, 1121, 1121},
      {"requeued by an operator", {"n1", "n2"}, false, 0, 1005},
  };
  for (const Case& is : cases) {
    FakeSlurm slurm;
    slurm.record.state = SlurmState::pending;
    slurm.record.restarts = 1;
    slurm.record.completing = !is.not_done.empty();
    slurm.record.not_done = is.not_done;
    slurm.record.times.begin = is.begin;
    slurm.wait_until_done(1e9);
    slurm.full = true;
    NextRun next = to(4);
    next.node = "n1";
    next.lost_node = is.lost_node;
    cr_expect(walk_alone(slurm, Party::launcher, next).end == RoadEnd::found, "%s", is.what);
    cr_expect(slurm.record.times.begin == is.expected, "%s: %ld", is.what,
              static_cast<long>(slurm.record.times.begin));
  }
}

Test(requeue, a_hold_by_somebody_else_stays) {
  FakeSlurm slurm;
  slurm.record.state = SlurmState::pending;
  slurm.record.restarts = 1;
  slurm.record.priority = 0;
  cr_expect(walk_alone(slurm, Party::launcher, to(2)).end == RoadEnd::found);
  cr_expect(slurm.record.priority == 0 && slurm.record.times.begin == 0);
  cr_expect(slurm.record.requested_gpus() == 2, "the size of its next run is another matter");
}

namespace {

/// One who walks, a step at a time, and may die after any of them.
struct Walker {
  Party party;
  double from = 0;      ///< when it begins
  int steps = 1 << 20;  ///< until it dies
  std::optional<RequeueRoad> road{};
  double next_at = 0;
  bool done = false;

  bool dead() const { return steps == 0; }
  bool over() const { return done || dead(); }

  void step(FakeSlurm& slurm, NextRun next, double takes) {
    if (over() || slurm.clock < std::max(from, next_at)) return;
    if (!road) road.emplace(party, next, at(slurm.clock));
    --steps;
    next_at = slurm.clock + takes;
    const RequeueRoad::Step now = road->next();
    if (std::holds_alternative<RequeueRoad::Done>(now)) {
      done = true;
    } else if (std::holds_alternative<RequeueRoad::Look>(now)) {
      const auto job = slurm.job(7u);
      road->looked(job ? Result<QueuedJob>(queued_job(*job)) : Result<QueuedJob>(job.error()),
                   at(slurm.clock));
    } else if (const auto* pause = std::get_if<RequeueRoad::Pause>(&now)) {
      next_at += std::chrono::duration<double>(pause->time).count();
      road->paused();
    } else if (std::holds_alternative<RequeueRoad::Requeue>(now)) {
      road->requeued(slurm.requeue_running(7), at(slurm.clock));
    } else if (const auto* change = std::get_if<RequeueRoad::Change>(&now)) {
      road->changed(slurm.change(slurm.record, change->change), at(slurm.clock));
    }
  }
};

struct Deaths {
  int command = 1 << 20;         ///< steps
  int launcher = 1 << 20;        ///< steps
  double launcher_killed = 1e9;  ///< seconds after the commit
  double takes = 0.03;           ///< seconds for a step
  double looks_every = 0.5;      ///< how often the launcher asks about a job that was requeued
};

/// From the commit to the next start: why it went wrong, or nothing.
std::string trouble_with(const Deaths& deaths) {
  FakeSlurm slurm;
  slurm.batch_ends_after = 1e6;
  const double begun = slurm.clock;
  Walker command{Party::command, begun, deaths.command};
  Walker launcher{Party::launcher, begun + 10, deaths.launcher};
  Walker rescue{Party::rescue, 1e9};
  NextRun next = to(2);
  next.started = 900;
  double launcher_over = 0;
  while (slurm.starts == 0 && slurm.clock < begun + 300) {
    slurm.advance(0.01);
    command.step(slurm, next, deaths.takes);
    // slurmctld signals the batch script of a job that is requeued.
    const double since = slurm.clock - begun;
    if (slurm.record.state == SlurmState::pending)
      launcher.from = std::min(launcher.from, slurm.clock + deaths.looks_every);
    if (since >= deaths.launcher_killed && !launcher.done) launcher.steps = 0;
    launcher.step(slurm, next, deaths.takes);
    if (launcher.over() && launcher_over == 0) {
      launcher_over = slurm.clock;
      rescue.from = launcher.dead() && !launcher.done ? slurm.clock + 0.1 : 1e9;
    }
    NextRun rescued = next;
    rescued.started = 0;
    rescued.gpus_now = 0;
    if (rescue.from < 1e9) rescue.step(slurm, rescued, deaths.takes);
    const bool batch_over = launcher.done || rescue.done;
    if (batch_over && slurm.record.completing && slurm.batch_ends_after > 1e5) {
      slurm.batch_ends_after = 0;
      slurm.wait_until_done(slurm.clock + (launcher.done ? 1 : 6.5));
    }
  }
  if (slurm.starts != 1) return "it does not start again";
  if (slurm.lost) return "it starts in the second in which its credential ended";
  if (slurm.record.restarts != 1)
    return fmt::format("it is requeued {} times", slurm.record.restarts);
  if (slurm.record.gpus() != 2) return fmt::format("it has {} GPUs", slurm.record.gpus());
  const double took = slurm.clock - begun;
  return took > 45 ? fmt::format("it starts after {:.0f} s", took) : "";
}

}  // namespace

Test(requeue, every_order_of_death_brings_the_job_back) {
  for (int command = 0; command <= 8; ++command)
    for (int launcher = 0; launcher <= 8; ++launcher)
      for (double killed : {0.0, 0.05, 0.1, 0.15, 0.3, 0.6, 3.0, 9.9, 10.05, 12.0, 1e9}) {
        const std::string trouble = trouble_with({.command = command == 8 ? 1 << 20 : command,
                                                  .launcher = launcher == 8 ? 1 << 20 : launcher,
                                                  .launcher_killed = killed});
        cr_expect(trouble.empty(),
                  "%s: the command dies after %d steps, the launcher after %d or %.2f s",
                  trouble.c_str(), command, launcher, killed);
      }
}

Test(requeue, any_timing_brings_the_job_back) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](int most) { return static_cast<int>(random() % most); };
    const Deaths deaths{.command = below(3) == 0 ? 1 << 20 : below(10),
                        .launcher = below(3) == 0 ? 1 << 20 : below(10),
                        .launcher_killed = below(2) == 0 ? 1e9 : below(13000) / 1000.0,
                        .takes = below(400) / 1000.0,
                        .looks_every = below(1500) / 1000.0};
    const std::string trouble = trouble_with(deaths);
    cr_expect(trouble.empty(), "seed %u: %s", seed, trouble.c_str());
  }
}

Test(requeue, the_stock_delay_is_the_life_of_a_credential) {
  cr_expect(stock_requeue_delay("").count() == 121);
  cr_expect(stock_requeue_delay("socket=/run/munge,cred_expire=30").count() == 31);
  cr_expect(stock_requeue_delay("cred_expire=2").count() == 6);
  for (const char* wrong : {"cred_expire=", "cred_expire=x", "cred_expire", "expire=9"})
    cr_expect(stock_requeue_delay(wrong).count() == 121, "%s", wrong);
}
