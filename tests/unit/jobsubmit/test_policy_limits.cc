// SPDX-License-Identifier: Apache-2.0
/// Sizes and shares of a tenant: gpus, framework_limits and sizing.

#include <criterion/criterion.h>

#include <string>

#include "tests/unit/jobsubmit/policy_support.h"

using namespace bellows;

Test(policy_limits, sizes, .timeout = 10) {
  const struct {
    const char* defaults;
    const char* gpus;
    const char* sizes;
    std::uint32_t start;
  } kCases[] = {
      {"", "", "1-4096", 1},
      {"", "max: 8", "1-8", 1},
      {"", "min: 2, max: 8, step: 3", "2-8:3", 2},
      {"", "sizes: [1, 2, 4, 8]", "1,2,4,8", 1},
      {"", "sizes: [1, 2, 4, 8], max: 4, start: 2", "1,2,4", 2},
      {"", "sizes: powers_of_two, min: 2, max: 20", "2,4,8,16", 2},
      {"", "sizes: whole_nodes, gpus_per_node: 4, max: 16", "4-16:4", 4},
      {"", "sizes: whole_nodes, gpus_per_node: 4, min: 5, max: 9", "8", 8},
      {"gpus_per_node: 4", "sizes: whole_nodes, max: 8", "4,8", 4},
      {"max: 8, start: 2", "", "1-8", 2},
      {"max: 8, start: 2", "max: 4", "1-4", 2},
      {"max: 8, start: 8", "max: 4", "1-4", 4},
      {"max: 8, start: 2", "min: 4", "4-8", 4},
      {"max: 8, step: 2", "sizes: powers_of_two", "1,2,4,8", 1},
      {"max: 8, sizes: powers_of_two", "step: 7", "1,8", 1},
      {"max: 8, sizes: powers_of_two", "sizes: [2, 6]", "2,6", 2},
      {"max: 8, sizes: powers_of_two", "types: [a100]", "1,2,4,8", 1},
  };
  for (const auto& one : kCases) {
    const Tenant tenant = only_tenant(std::string("gpus: {") + one.gpus + "}",
                                      std::string("gpus: {") + one.defaults + "}");
    cr_expect(tenant.gpus.sizes.to_string() == one.sizes && tenant.gpus.start == one.start,
              "{%s} {%s} gave %s, start %u", one.defaults, one.gpus,
              tenant.gpus.sizes.to_string().c_str(), tenant.gpus.start);
  }
}

Test(policy_limits, whole_nodes_end_where_other_sizes_begin, .timeout = 10) {
  const char* const whole = "gpus: {sizes: whole_nodes, gpus_per_node: 4, max: 16}";
  cr_expect(only_tenant(whole).gpus.gpus_per_node == 4);
  cr_expect(only_tenant("gpus: {max: 8}", whole).gpus.gpus_per_node == 4);
  cr_expect(only_tenant("gpus: {gpus_per_node: 8}", whole).gpus.sizes.to_string() == "8,16");
  cr_expect(only_tenant("gpus: {step: 1}", whole).gpus.gpus_per_node == 0);
  cr_expect(only_tenant("gpus: {gpus_per_node: 4}").gpus.gpus_per_node == 0, "not asked for");
}

Test(policy_limits, range_types_and_nodes, .timeout = 10) {
  const GpuLimits gpus = only_tenant(
                             "gpus: {max: 8, range: 2-4, types: [a100, h100], max_nodes: 2, "
                             "shrink_below_start: false}")
                             .gpus;
  cr_assert(gpus.range);
  cr_expect(gpus.range->to_string() == "2-4" && gpus.max_nodes == 2 && !gpus.shrink_below_start);
  cr_expect(gpus.types.size() == 2 && gpus.types[1] == "h100");
  const auto range = [](const char* keys) {
    const auto left = only_tenant(std::string("gpus: {") + keys + "}", "gpus: {range: 2-6}").gpus;
    return left.range ? left.range->to_string() : "none";
  };
  cr_expect(range("max: 8") == "2-6");
  cr_expect(range("max: 4") == "2-4", "an inherited range gives way");
  cr_expect(range("sizes: [1, 3, 6]") == "3,6");
  cr_expect(range("max: 1") == "none");
  cr_expect(range("range: ") == "none");
}

Test(policy_limits, framework_limits_inherit_from_the_tenants, .timeout = 10) {
  const Tenant tenant = only_tenant(
      "gpus: {max: 8, start: 2, types: [a100]}, "
      "framework_limits: {\"f:1\": {gpus: {max: 1}}, f: {gpus: {step: 3}}, g: {}}");
  const auto sizes = [&](const char* name, const char* version) {
    return tenant.limits_for(name, version).sizes.to_string();
  };
  cr_expect(sizes("f", "1") == "1");
  cr_expect(tenant.limits_for("f", "1").start == 1);
  cr_expect(tenant.limits_for("f", "1").types.size() == 1);
  cr_expect(sizes("f", "2") == "1-7:3");
  cr_expect(sizes("g", "") == "1-8");
  cr_expect(sizes("", "") == "1-8", "a job without a framework has the tenant's");
  const Tenant first = only_tenant("gpus: {max: 8}, framework_limits: {\"*\": {gpus: {max: 2}}}");
  cr_expect(first.limits_for("g", "").sizes.max() == 2);
  cr_expect(first.limits_for("", "").sizes.max() == 8);
  const char* const rules = "gpus: {max: 16, step: 3}, framework_limits: {g: {gpus: {min: 2}}}";
  cr_expect(only_tenant("", rules).limits_for("g", "").sizes.to_string() == "2-14:3");
  cr_expect(only_tenant("gpus: {max: 5}", rules).limits_for("g", "").sizes.to_string() == "2,5");
  cr_expect(only_tenant("framework_limits: {}", rules).rules.empty());
}

Test(policy_limits, shares_by_gpu_type, .timeout = 10) {
  const Sizing one =
      only_tenant("sizing: {per_gpu: {cpus: 4, memory: 16G, snapshot: 512m}}").sizing;
  cr_expect(one.share("a100") && one.share("a100") == one.share(""));
  cr_expect(one.share("")->cpus == 4 && one.share("")->memory_mib == 16384);
  cr_expect(one.share("")->snapshot_mib == 512);
  const Sizing typed =
      only_tenant("sizing: {per_gpu: {default: {cpus: 2}, a100: {memory: 1T}}}").sizing;
  cr_expect(typed.share("")->cpus == 2 && typed.share("v100")->cpus == 2);
  cr_expect(typed.share("a100")->cpus == 0 && typed.share("a100")->memory_mib == 1048576);
  const Sizing strict = only_tenant("sizing: {per_gpu: {a100: {cpus: 2}}}").sizing;
  cr_expect(strict.share("a100")->cpus == 2 && strict.share("v100") == nullptr);
  cr_expect(only_tenant("").sizing.share("") == nullptr);
}

Test(policy_limits, times_as_slurm_spells_them, .timeout = 10) {
  const struct {
    const char* text;
    std::uint32_t minutes;
  } kCases[] = {
      {"90", 90},          {"90:30", 91},     {"4:00:00", 240},     {"0:0:1", 1},
      {"2-12", 3600},      {"1-0", 1440},     {"1-1:30", 1530},     {"2-00:00:00", 2880},
      {"0-0:1:0", 1},      {"100:0:0", 6000}, {"\"00:30:00\"", 30}, {"5270400", 5270400},
      {"3660-0", 5270400},
  };
  for (const auto& one : kCases) {
    const Sizing sizing =
        only_tenant(std::string("sizing: {time: {max: ") + one.text + "}}").sizing;
    cr_expect(sizing.time_max_min == one.minutes && sizing.time_default_min == 0, "%s gave %u",
              one.text, sizing.time_max_min);
  }
}

Test(policy_limits, sizing_merges_key_by_key, .timeout = 10) {
  const Sizing sizing =
      only_tenant("sizing: {time: {max: 60}, qos: high, site_factor: 7}",
                  "sizing: {per_gpu: {cpus: 4}, time: {default: 4:00:00, max: 2-00:00:00}, "
                  "signal_lead: 120, placement: spread, partition: gpu, partitions: [\"gpu*\"], "
                  "qos: normal, qos_allowed: [normal, high], site_factor: 5}")
          .sizing;
  cr_expect(sizing.share("")->cpus == 4);
  cr_expect(sizing.time_max_min == 60 && sizing.time_default_min == 0, "time is one key");
  cr_expect(sizing.signal_lead_s == 120 && sizing.placement == PlacementStrategy::spread);
  cr_expect(sizing.partition == "gpu" && sizing.partitions.size() == 1);
  cr_expect(sizing.qos == "high" && sizing.qos_allowed.size() == 2 && sizing.site_factor == 7);
  const char* const defaults = "sizing: {placement: pack, partition: gpu}";
  cr_expect(only_tenant("", defaults).sizing.placement == PlacementStrategy::pack);
  cr_expect(only_tenant("sizing: {partition: }", defaults).sizing.partition.empty());
}

Test(policy_limits, quota, .timeout = 10) {
  cr_expect(not only_tenant("").quota && not only_tenant("quota: ").quota);
  const auto own = only_tenant("quota: {gpus: 0}").quota;
  cr_expect(own && own->gpus == 0 && own->parent.empty());
  const auto shared = only_tenant("accounts: [a, b], quota: {parent: Org, gpus: 1000000}").quota;
  cr_expect(shared && shared->gpus == 1000000 && shared->parent == "org");
}

Test(policy_limits, who_resizes, .timeout = 10) {
  cr_expect(only_tenant("").gpus.elastic == Elasticity::manual);
  cr_expect(only_tenant("gpus: {elastic: off}").gpus.elastic == Elasticity::off);
  cr_expect(only_tenant("gpus: {max: 4}", "gpus: {elastic: auto}").gpus.elastic ==
            Elasticity::automatic);
  const Tenant tenant = only_tenant("guarantee: 4, weight: 2");
  cr_expect(tenant.guarantee.of("a100") == 4 && tenant.weight == 2);
  const Guarantee typed = only_tenant("guarantee: {a100: 8, default: 2}", "guarantee: 4").guarantee;
  cr_expect(typed.of("a100") == 8 && typed.of("h100") == 2 && typed.of("") == 2);
  cr_expect(only_tenant("guarantee: {a100: 8}", "guarantee: 4").guarantee.of("h100") == 0);
}

Test(policy_limits, the_controller, .timeout = 10) {
  const auto none = good("version: 1\ntenants: {a: {gpus: {elastic: auto}}}\n");
  cr_expect(!none.controller);
  cr_assert(none.notes.size() == 1);
  cr_expect(none.notes[0].find("names no controller") != std::string::npos);
  const auto policy = good(
      "version: 1\ncontroller: {addresses: [\"a:1\", \"b:2\"], uid: 7, share: value, dwell: 5, "
      "make_room: never}\n");
  cr_assert(policy.controller);
  cr_expect(policy.controller->address.to_string() == "7@a:1,b:2");
  cr_expect(policy.controller->share_by_value && policy.controller->dwell_s == 5);
  cr_expect(!policy.controller->make_room_s);
  cr_expect(policy.controller->objective == ControllerSettings::Objective::fair);
}
