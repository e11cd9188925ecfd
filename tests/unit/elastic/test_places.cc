// SPDX-License-Identifier: Apache-2.0
// Divisions that also say where the GPUs are.
#include <criterion/criterion.h>

#include <utility>
#include <vector>

#include "elastic/optimizer/places.h"
#include "tests/unit/support/text_support.h"

using namespace bellows;

TestSuite(places, .timeout = 600);

namespace {

using Free = std::vector<std::uint32_t>;

constexpr std::uint32_t kNodes = 3;
constexpr std::uint32_t kEach = 4;

struct Pool {
  std::vector<ElasticJob> jobs;
  std::vector<GpuPlace> held;
  PoolNodes nodes{kEach, Free(kNodes, kEach)};
};

Result<PlacedPlan> plan(const Pool& pool) {
  std::vector<TenantShare> tenants;
  tenants.push_back({*TenantCurve::of(pool.jobs, kNodes * kEach)});
  return plan_places(std::move(tenants), {pool.held}, pool.nodes, Surplus::by_value);
}

/// A job with one size.
ElasticJob of_size(std::uint32_t gpus, std::int32_t value, std::uint32_t now = 0) {
  return {.sizes = {{gpus, 0, value}}, .now = now, .move_price = 5};
}

}  // namespace

Test(places, are_found_for_another_size_where_the_best_has_none) {
  Pool pool;
  pool.jobs = {of_size(2, 100, 2), of_size(2, 100, 2), of_size(4, 90)};
  pool.jobs[2].sizes.insert(pool.jobs[2].sizes.begin(), {2, 0, 50});
  pool.held = {{{0, 2}}, {{1, 2}}, {}};
  pool.nodes.free = {2, 2, 0};
  const auto placed = plan(pool);
  cr_assert(placed.ok());
  cr_expect(placed->solves == 2 && placed->tenants[0].jobs[2].gpus == 2, "4 are free, 2 together");
  cr_expect(placed->tenants[0].jobs[2].reason == Reason::starts);
}

Test(places, of_jobs_that_change_are_free_for_others) {
  Pool pool;
  pool.jobs = {of_size(4, 300), of_size(2, 10, 2)};
  pool.held = {{}, {{1, 2}}};
  pool.nodes.free = {0, 2, 0};
  const auto placed = plan(pool);
  cr_assert(placed.ok() && placed->solves == 1);
  cr_expect(placed->tenants[0].jobs[0].gpus == 4 && placed->places[0][0][0].node == 1);
  cr_expect(placed->places[0][1].empty());
}

Test(places, are_refused_where_they_are_wrong) {
  Pool pool;
  pool.jobs = {of_size(2, 10, 2)};
  pool.held = {{{0, 1}}};
  cr_expect(has(plan(pool).error().text, "not as many GPUs"));
  pool.held = {{{kNodes, 2}}};
  cr_expect(has(plan(pool).error().text, "not in the pool"));
  pool.held = {};
  cr_expect(has(plan(pool).error().text, "no such place"));
  pool.nodes.gpus_per_node = 0;
  cr_expect(has(plan(pool).error().text, "nodes without GPUs"));
}
