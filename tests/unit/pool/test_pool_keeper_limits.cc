// SPDX-License-Identifier: Apache-2.0
// What limits a keeper: bellowsd, and one that took its place.
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/pool/keeper_world.h"

using namespace bellows;
using namespace bellows::pool;

namespace {

/// bellowsd, as far as a keeper knows it.
class FakeController {
 public:
  Result<ServiceReply> answer(const ServiceReport& report) {
    const std::lock_guard lock(mutex_);
    newest = report;
    ++asked;
    if (!members) return Error{ErrorKind::unavailable, "bellowsd is away"};
    return ServiceReply{.again_s = 0.05, .members = members};
  }
  void set(std::optional<std::uint32_t> count) {
    const std::lock_guard lock(mutex_);
    members = count;
  }
  std::uint32_t leaving() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::uint32_t>(newest.leaving.size());
  }
  std::uint32_t wanted() {
    const std::lock_guard lock(mutex_);
    return newest.wanted;
  }

  std::atomic<int> asked = 0;

 private:
  std::mutex mutex_;
  ServiceReport newest;
  std::optional<std::uint32_t> members;
};

}  // namespace

Test(pool_limit, has_no_more_members_than_bellowsd_lets_it_have, .timeout = 60) {
  FakeController controller;
  KeeperWorld world;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  controller.set(2);
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(world.scale(4));
  cr_assert(eventually([&] { return controller.wanted() == 4; }), "it is told the whole wish");
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 2; }, 1s));
  cr_expect(world.pool().why().find("bellowsd lets it have 2 now") != std::string::npos, "%s",
            world.pool().why().c_str());
  controller.set(3);
  cr_assert(eventually([&] { return world.cluster.running() == 3; }));
  const FakeMember third(world, 3);
  cr_assert(eventually([&] { return world.count(READY) == 3; }));
  controller.set(1);
  cr_assert(eventually([&] { return second.drained && third.drained; }), "they end their calls");
  cr_expect_not(first.drained);
}

Test(pool_limit, members_that_begin_are_not_left_above_it, .timeout = 60) {
  FakeController controller;
  KeeperWorld world;
  world.settings.min = 2;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  controller.set(4);
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember first(world, 1), second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  cr_assert(world.scale(4));
  cr_assert(eventually([&] { return world.cluster.running() == 4; }));
  controller.set(1);
  cr_assert(eventually([&] { return world.cluster.running() == 2; }), "its least is its own");
  cr_expect_not(first.drained || second.drained);
}

Test(pool_limit, a_bellowsd_that_is_away_is_no_reason_to_act, .timeout = 60) {
  FakeController controller;
  KeeperWorld world;
  world.ask = [&](const ServiceReport& report) { return controller.answer(report); };
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  cr_assert(world.scale(3));
  cr_assert(eventually([&] { return controller.wanted() == 3; }));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 1; }, 1s));
  cr_expect(world.pool().why().find("bellowsd is away") != std::string::npos);
  controller.set(2);
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  controller.set(std::nullopt);
  const int before = controller.asked;
  cr_assert(eventually([&] { return controller.asked > before; }));
  cr_expect_not(eventually([&] { return second.drained || world.cluster.submitted() > 2; }, 1s));
  ChangeRequest request;
  request.set_drain_job(1);
  cr_assert(change_pool(world.dir(), request));
  cr_assert(eventually([&] { return world.cluster.submitted() == 3; }),
            "one that goes is replaced");
  cr_expect(eventually([&] { return controller.leaving() == 1 || first.drained; }));
}

Test(pool_term, who_was_replaced_ends_and_does_nothing_any_more, .timeout = 60) {
  KeeperWorld world;
  world.settings.min = 2;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  KeeperPlace place = *read_keeper(world.dir());
  cr_expect_eq(place.term, 7);
  place.term = 8;
  cr_assert(write_keeper(world.dir(), place).ok());
  world.cluster.end(1);
  cr_assert(eventually([&] { return world.last == KeeperTurn::replaced; }));
  cr_expect_eq(world.cluster.submitted(), 2);
}

Test(pool_term, a_run_of_before_ends_when_slurm_says_so, .timeout = 60) {
  KeeperWorld world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  SlurmJob now = world.cluster.keeper();
  now.restarts = 1;
  now.state = SlurmState::pending;
  world.cluster.set_keeper(now);
  cr_assert(eventually([&] { return !world.pool().trouble().empty(); }));
  world.cluster.end(1);
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 1; }, 1500ms),
                "its job does not run");
  now.state = SlurmState::running;
  world.cluster.set_keeper(now);
  cr_assert(eventually([&] { return world.last == KeeperTurn::replaced; }));
  cr_expect_eq(world.cluster.submitted(), 1);
}

Test(pool_term, what_slurm_said_long_ago_is_no_reason_to_act, .timeout = 60) {
  KeeperWorld world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const FakeMember first(world, 1);
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  cr_assert(world.scale(2));
  cr_assert(eventually([&] { return world.cluster.running() == 2; }));
  const FakeMember second(world, 2);
  cr_assert(eventually([&] { return world.count(READY) == 2; }));
  world.later = 11s;
  cr_assert(world.scale(1));
  cr_expect_not(eventually([&] { return first.drained || second.drained; }, 1s));
  cr_assert(world.scale(3));
  cr_expect_not(eventually([&] { return world.cluster.submitted() > 2; }, 1s));
  cr_expect_eq(world.count(READY), 2, "callers go on");
  world.later = 0s;
  cr_assert(eventually([&] { return world.cluster.submitted() == 3; }));
}

Test(pool_term, a_keeper_of_before_cannot_take_the_pool_back, .timeout = 60) {
  KeeperWorld world;
  world.start();
  const KeeperPlace own = *read_keeper(world.dir());
  const KeeperPlace before{.host = "n1", .port = 1, .job = 999, .term = 6};
  KeeperSeat seat(world.dir());
  cr_expect(seat.take(before).error().kind == ErrorKind::busy);
  cr_expect(*read_keeper(world.dir()) == own);
  // It may have looked before the other one came.
  cr_assert(write_keeper(world.dir(), before).ok());
  cr_expect(eventually([&] { return *read_keeper(world.dir()) == own; }), "and it is put right");
  cr_expect(world.last == KeeperTurn::goes_on);
  cr_expect_gt(next_term(world.dir()), own.term);
  cr_assert(
      write_keeper(world.dir(), {.host = "n1", .port = 1, .job = 9, .term = UINT32_MAX}).ok());
  cr_expect_eq(next_term(world.dir()), std::uint64_t{UINT32_MAX} + 1, "clocks may go wrong");
}

Test(pool_term, who_cannot_read_whether_it_has_the_pool_waits, .timeout = 60) {
  KeeperWorld world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const std::string file = world.dir() + "/keeper.json";
  const KeeperPlace own = *read_keeper(world.dir());
  const auto stub = Keeper::NewStub(open_channel(own.address(), world.key));
  const auto trouble = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    Pool pool;
    cr_assert(stub->Show(&context, ShowRequest(), &pool).ok());
    return pool.trouble();
  };
  cr_assert_eq(unlink(file.c_str()), 0);
  cr_assert(eventually([&] { return read_keeper(world.dir()).ok(); }), "one that is lost is made");
  cr_assert_eq(unlink(file.c_str()), 0);
  cr_assert_eq(mkdir(file.c_str(), 0700), 0);
  cr_assert(eventually([&] { return trouble().find("keeper.json") != std::string::npos; }));
  cr_assert_eq(rmdir(file.c_str()), 0);
  cr_assert(eventually([&] { return trouble().empty(); }));
  cr_expect(world.last == KeeperTurn::goes_on);
}

Test(pool_term, members_follow_no_keeper_of_before, .timeout = 60) {
  KeeperWorld world;
  world.start();
  cr_assert(eventually([&] { return world.cluster.running() == 1; }));
  const auto line = std::move(*KeeperLine::open(world.dir(), world.key));
  line->send(ready_report(1));
  cr_assert(eventually([&] { return world.count(READY) == 1; }));
  world.stop();
  KeeperWorld cut_off;
  cut_off.run.term = 6;
  cut_off.start();
  cr_assert(write_keeper(world.dir(), *read_keeper(cut_off.dir())).ok());
  std::string trouble;
  cr_expect(eventually([&] {
    line->send(ready_report(1));
    if (const auto told = line->take_trouble()) trouble = *told;
    return trouble.find("a keeper of before") != std::string::npos;
  }));
}
