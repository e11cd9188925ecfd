// SPDX-License-Identifier: Apache-2.0
#include <criterion/criterion.h>

#include <vector>

#include "pool/policy/pool_policy.h"
#include "pool/simulate/loads.h"
#include "pool/simulate/number_file.h"
#include "pool/simulate/policy_scaler.h"
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
  PolicyScaler autoscaler(policy, service.call_s);
  // Apart, since the assertion asks twice, and an autoscaler keeps what it has seen.
  const double agility = play(service, load, autoscaler, 0).agility;
  cr_assert_float_eq(agility, 9 * 28 / 200.0, 1e-9);
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

namespace {

PoolPolicy policy_of(const char* text) {
  const auto policy = read_pool_policy(text, "p");
  cr_assert(policy, "%s", policy ? "" : policy.error().text.c_str());
  return *policy;
}

}  // namespace

Test(pool_simulate, a_policy_is_played_by_what_its_rules_ask_for, .timeout = 10) {
  Service service = service_of(1);
  service.target = 2;
  std::vector<double> load(60, 8);
  load.resize(300, 40);
  // 40 calls a second of half a second are 20 at once, 20 in a second, and load each member by 2/3.
  for (const char* text :
       {"max: 50\ntargets: [{metric: calls, per_member: 2}]",
        "max: 50\ntargets: [{metric: calls.rate, per_member: 4}]",
        "max: 50\ntargets: [{metric: queue, per_member: 2, of: mean}]",
        "max: 50\nburst_interval: 5\nthresholds: [{metric: cpu, up: 0.75, down: 0.6}]"}) {
    const PoolPolicy policy = policy_of(text);
    service.max = policy.max;
    PolicyScaler scaler(policy, service.call_s);
    const PoolFigures figures = play(service, load, scaler, 0);
    cr_expect_lt(figures.agility, 4, "%s: %g", text, figures.agility);
    cr_expect_gt(figures.starts, 5, "%s", text);
    cr_expect_not(scaler.why().empty());
  }
}

Test(pool_simulate, a_script_is_played_by_the_metrics_that_it_names, .timeout = 10) {
  Service service = service_of(1);
  service.target = 2;
  std::vector<double> load(60, 8);
  load.resize(300, 40);
  const auto policy = read_pool_policy(
      "metrics = {'calls'} function members(s) return s.metrics.calls.sum / 2 end", "p.lua");
  cr_assert(policy);
  PoolPolicy wide = *policy;
  service.max = wide.max = 50;
  PolicyScaler scaler(wide, service.call_s);
  cr_expect_lt(play(service, load, scaler, 0).agility, 4);
  cr_expect_eq(PolicyScaler::complaint(wide), "");
}

Test(pool_simulate, what_cant_be_simulated_is_said) {
  cr_expect_neq(PolicyScaler::complaint(policy_of("max: 4")), "");
  cr_expect_neq(
      PolicyScaler::complaint(policy_of("max: 4\nthresholds: [{metric: memory, up: 0.8}]")), "");
  cr_expect_eq(PolicyScaler::complaint(policy_of("max: 4\ntargets: [{metric: x, per_member: 1}]")),
               "");
}

Test(pool_simulate, numbers_are_read_from_a_file) {
  const auto numbers = parse_numbers("# calls\n1\n 2.5 \n\n0\r\n1e3", "f", 4);
  cr_assert(numbers, "%s", numbers ? "" : numbers.error().text.c_str());
  cr_expect((*numbers == std::vector<double>{1, 2.5, 0, 1000}));
  for (const char* text :
       {"", "# none", "1\nx", "-1", "nan", "inf", "1e10", "1 2", "1\n2\n3\n4\n5"})
    cr_expect_not(parse_numbers(text, "f", 4), "%s", text);
  cr_expect(parse_numbers("1\nx", "f", 4).error().text.starts_with("f:2: "));
}
