// SPDX-License-Identifier: Apache-2.0
// Elastic pools beside jobs, in one division of the GPUs.
#include <string>

#include "elastic/daemon/service_book.h"
#include "tests/unit/elastic/planner_world.h"

using namespace bellows;
using namespace bellows::planner_test;

namespace {

constexpr std::uint32_t kKeeper = 100;

std::string member_contract(const std::string& tenant) {
  return "bellows/1 tenant=" + tenant + " gpus=1 ckpt=/c pool=web";
}

/// Jobs 10, 12, ... of one user are the members of a pool, each with a GPU.
struct PoolWorld : World {
  PoolWorld(std::uint32_t min, std::uint32_t max, std::uint32_t wanted) {
    services.push_back({.keeper = kKeeper,
                        .uid = 1000,
                        .pool = {.name = "web", .min = min, .max = max},
                        .wanted = wanted});
  }
  SlurmJob& member(std::uint32_t number, bool runs, const std::string& tenant = "a",
                   std::uint32_t gpus = 1) {
    return cluster.add(10 + 2 * number, gpus, runs, member_contract(tenant));
  }
  void members(std::uint32_t count) {
    for (std::uint32_t n = 0; n < count; ++n) member(n, true);
  }
  void leaves(std::uint32_t number) { services[0].leaving.insert(10 + 2 * number); }
  ServiceLine service() {
    const PoolPlan plan = this->plan();
    cr_assert(plan.services.size() == 1);
    return plan.services[0];
  }
};

}  // namespace

Test(services, a_pool_alone_may_have_what_it_wants_as_far_as_there_are_gpus) {
  PoolWorld world(1, 20, 3);
  world.members(1);
  cr_expect(world.service().members == 3 && world.service().to == 3);
  world.services[0].wanted = 20;
  cr_expect(world.service().members == 8);
  world.services[0].wanted = 1;
  cr_expect(world.service().members == 1);
}

Test(services, a_pool_and_a_job_share_and_the_job_shrinks_for_it) {
  PoolWorld world(1, 6, 1);
  world.members(1);
  world.add(1, 7, true, "a", "1-8");
  world.all_report();
  cr_expect(world.planned(1) == 7, "%u", world.planned(1));
  world.services[0].wanted = 4;
  cr_expect(world.planned(1) < 7, "%u", world.planned(1));
  const ServiceLine line = world.service();
  cr_expect(line.to > 1 && line.to <= 4, "%u", line.to);
  cr_expect(world.planned(1) + line.to <= 8);
  cr_expect(line.members == 1, "what the job has is not free yet: %u", line.members);
}

Test(services, members_are_no_jobs_of_their_own) {
  PoolWorld world(1, 6, 2);
  world.members(2);
  SlurmJob& elastic = world.cluster.all[10];
  elastic.admin_comment = contract("a", "1-8") + " pool=web";
  cr_expect(!elastic_contract(elastic));
  world.add(1, 2, true, "a", "1-8");
  world.all_report();
  cr_expect(world.plan().lines.size() == 1);
  cr_expect(world.pools()[0].taken == 0 && world.pools()[0].wanted == 0);
  world.services.clear();
  cr_expect(world.pools()[0].taken == 2, "without a keeper that speaks they are anybody's jobs");
}

Test(services, what_leaving_members_hold_is_not_handed_out) {
  PoolWorld world(1, 6, 2);
  world.members(4);
  world.leaves(2);
  world.leaves(3);
  world.add(1, 2, true, "a", "2-6");
  world.all_report();
  // Two GPUs are free, and the tenant is at its limit as long as those that leave are there.
  world.terms.tenants["a"].limit = 6;
  cr_expect(world.planned(1) == 2, "%u", world.planned(1));
  world.services[0].wanted = 4;
  cr_expect(world.service().members == 2, "%u", world.service().members);
  world.cluster.end(14);
  world.cluster.end(16);
  world.services[0].leaving.clear();
  cr_expect(world.planned(1) + world.service().to <= 6);
  cr_expect(world.service().members > 2, "%u", world.service().members);
}

Test(services, members_that_are_to_go_hold_their_gpus_until_they_are_told) {
  PoolWorld world(1, 6, 1);
  world.members(4);
  world.add(1, 2, true, "a", "2-4");
  world.all_report();
  world.terms.tenants["a"].limit = 6;
  const ServiceLine line = world.service();
  cr_expect(line.from == 4 && line.to == 1 && line.members == 1, "%u %u", line.to, line.members);
  cr_expect(world.planned(1) == 2, "%u", world.planned(1));
}

Test(services, a_guarantee_of_another_tenant_comes_first) {
  PoolWorld world(1, 6, 6);
  world.members(6);
  world.add(1, 2, true, "b", "2-6");
  world.all_report();
  world.terms.tenants["b"].guarantee = {.any = 6, .of_type = {}};
  // The job tries twice what it has.
  const ServiceLine line = world.service();
  cr_expect(line.to == 4 && line.members == 4, "%u %u", line.to, line.members);
  cr_expect(world.planned(1) == 2, "as long as the members are there: %u", world.planned(1));
}

Test(services, the_least_is_guaranteed_and_the_most_is_never_exceeded) {
  PoolWorld world(2, 3, 3);
  world.members(1);
  world.add(1, 7, true, "a", "1-8");
  world.all_report();
  cr_expect(world.service().members == 2, "%u", world.service().members);
  cr_expect(world.planned(1) <= 6);
  world.terms.tenants["a"].limit = 1;
  cr_expect(world.service().members == 2);
}

Test(services, the_free_gpus_go_to_one_pool_only) {
  PoolWorld world(1, 8, 8);
  world.members(1);
  world.services.push_back({.keeper = kKeeper + 1,
                            .uid = 1001,
                            .pool = {.name = "web", .min = 1, .max = 8},
                            .wanted = 8});
  world.cluster.add(11, 1, true, member_contract("b"));
  const PoolPlan plan = world.plan();
  cr_assert(plan.services.size() == 2);
  cr_expect(plan.services[0].members + plan.services[1].members == 8);
  cr_expect(plan.free == 0);
}

Test(services, members_with_several_gpus_are_counted_by_them) {
  PoolWorld world(1, 4, 4);
  world.member(0, true, "a", 2);
  cr_expect(world.service().members == 4 && world.service().to == 8);
  world.add(1, 3, true, "a", "3-4");
  world.note();
  cr_expect(world.service().members == 2, "%u", world.service().members);
}

Test(services, a_book_believes_slurm) {
  SlurmJob keeper;
  keeper.id = kKeeper;
  keeper.uid = 1000;
  keeper.state = SlurmState::running;
  keeper.admin_comment = "bellows/1 tenant=a gpus=0 ckpt=/c pool=web:1-4";
  ServiceBook book;
  const ServiceBook::Clock::time_point now{std::chrono::seconds(1000)};
  const ServiceReport report{.job = kKeeper, .wanted = 1000};
  cr_expect(book.take(report, keeper.uid, now).error().kind == ErrorKind::not_found);
  book.update({keeper});
  cr_expect(book.claims(now).empty());
  cr_expect(book.take(report, keeper.uid + 1, now).error().kind == ErrorKind::denied);
  const auto first = book.take(report, keeper.uid, now);
  cr_assert(first);
  cr_expect(!first->members, "no plan has been made with it");
  cr_assert(book.claims(now).size() == 1);
  cr_expect(book.claims(now)[0].wanted == 4);
  book.allow(kKeeper, 3);
  cr_expect(book.take(report, keeper.uid, now)->members == 3U);
  cr_expect(book.claims(now + std::chrono::seconds(16)).empty(), "it is silent");
  book.update({});
  cr_expect(!book.take(report, keeper.uid, now));
}
