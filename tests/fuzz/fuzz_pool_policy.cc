// SPDX-License-Identifier: Apache-2.0
/// pool.yaml as an attacker would write it: every text gives a policy that keeps what its types
/// promise, or an error with a place. The same text as a script is stopped in time, and gives a
/// number of members or an error. So do the numbers of a load.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "pool/policy/pool_policy.h"
#include "pool/simulate/number_file.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_numbers(std::string_view text) {
  const auto numbers = bellows::pool::parse_numbers(text, "load", 100);
  if (!numbers) return require(numbers.error().text.starts_with("load"));
  require(!numbers->empty() && numbers->size() <= 100);
  for (const double number : *numbers) require(number >= 0 && number <= 1e9);
}

void run_as_script(std::string_view text) {
  const auto policy = bellows::pool::read_pool_policy(text, "pool.lua");
  if (!policy) {
    require(policy.error().text.starts_with("pool.lua:"));
    return;
  }
  bellows::pool::ScriptSignals signals{.min = 1, .max = 8, .wanted = 2, .metrics = {}};
  for (const auto& name : policy->script->names()) signals.metrics[name] = {.sum = 3, .known = 2};
  const auto members = policy->script->members(signals);
  require(members ? *members >= 0 && *members <= 1e6
                  : members.error().text.starts_with("pool.lua:"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_numbers(text);
  run_as_script(text);
  const auto policy = bellows::pool::read_pool_policy(text, "pool.yaml");
  if (!policy) {
    require(policy.error().text.starts_with("pool.yaml:"));
    return 0;
  }
  require(policy->min <= policy->max && policy->max > 0 && policy->max <= 10'000);
  for (const auto& rule : policy->targets)
    require(!rule.metric.empty() && std::isfinite(rule.per_member) && rule.per_member > 0);
  for (const auto& rule : policy->thresholds)
    require(rule.down > 0 && rule.down < rule.up && rule.up <= 1);
  return 0;
}
