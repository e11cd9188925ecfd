// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <vector>

#include "pool/simulate/loads.h"
#include "pool/simulate/rivals.h"

using namespace bellows::pool;

namespace {

/// Holds a size, whatever comes.
struct Fixed : Autoscaler {
  explicit Fixed(std::uint32_t members) : size(members) {}
  PoolChoice decide(const PoolView&) override {
    return {.wanted = size, .chooses = false, .drain = {}};
  }
  std::uint32_t size;
};

Service service_of(double start_s) {
  Service service;
  service.start_s = {start_s};
  return service;
}

PoolFigures figures_of(const char* name, const Service& service, const std::vector<double>& load) {
  const auto autoscaler = make_autoscaler(name, service, load);
  return play(service, load, *autoscaler, 0);
}

}  // namespace

Test(pool_simulate, measures_excess_and_shortage, .timeout = 10) {
  // 40 calls a second need 10 members, and one member of 10 is there from the second after.
  Fixed fixed(13);
  const PoolFigures more = play(service_of(1), std::vector<double>(100, 40), fixed, 0);
  cr_assert_float_eq(more.agility, 3 * 0.99, 1e-9);
  cr_assert_eq(more.starts, 3);
  cr_assert_eq(more.failed, 0);
  Fixed less(3);
  const PoolFigures few = play(service_of(1), std::vector<double>(100, 40), less, 0);
  cr_assert_float_eq(few.agility, 7 * 0.99, 1e-9);
  cr_assert_gt(few.failed, 0);
}

Test(pool_simulate, starts_take_their_time, .timeout = 10) {
  std::vector<double> load(10, 4);
  load.resize(100, 40);
  cr_assert_float_eq(figures_of("bound", service_of(8), load).agility, 9 * 8 / 100.0, 1e-9);
}

Test(pool_simulate, takes_shorter_ticks_and_notice, .timeout = 10) {
  // The jump at 5 s is seen at 5.4, and the nine members are ready at 7.75: from the tick at 7.8.
  PoolPolicy policy;
  policy.max = 100;
  policy.targets = {{.metric = "load", .per_member = 1, .of = TargetRule::Of::mean}};
  Service service = service_of(2.35);
  service.call_s = service.target = 1;
  service.at_once = 1e9;
  service.tick_s = 0.1;
  service.notice_s = 0.4;
  std::vector<double> load(50, 1);
  load.resize(200, 10);
  const auto autoscaler = make_bellows(policy);
  cr_assert_float_eq(play(service, load, *autoscaler, 0).agility, 9 * 28 / 200.0, 1e-9);
  cr_assert_float_eq(figures_of("bound", service, load).agility, 9 * 24 / 200.0, 1e-9);
}

Test(pool_simulate, is_the_same_each_time, .timeout = 30) {
  const Service service = service_of(5);
  const auto load = make_load("cyclic", 100, 3);
  for (const auto& name : autoscaler_names())
    cr_assert_eq(figures_of(name.c_str(), service, load).agility,
                 figures_of(name.c_str(), service, load).agility);
  cr_assert_neq(load[7], make_load("cyclic", 100, 4)[7]);
}

Test(pool_simulate, the_policy_loses_no_call_and_is_nearer_than_the_others, .timeout = 60) {
  const Service service = service_of(8);
  for (const auto& name : load_names()) {
    const auto load = make_load(name, 400, 1);
    const PoolFigures ours = figures_of("bellows", service, load);
    cr_assert_eq(ours.failed, 0, "%s", name.c_str());
    for (const auto& other : autoscaler_names())
      if (other != "bound" && other != "bellows")
        cr_assert_lt(ours.agility, figures_of(other.c_str(), service, load).agility, "%s %s",
                     name.c_str(), other.c_str());
  }
}
