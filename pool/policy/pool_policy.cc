// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/pool_policy.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "jobsubmit/policy/policy_reader_values.h"

namespace bellows::pool {
namespace {

constexpr std::uint32_t kMostMembers = 10'000;
constexpr std::uint32_t kMostSeconds = 7 * 86400;
constexpr std::size_t kMostRules = 64;

/// Above 0 and at most `most`.
double decimal(ValueReader& in, const YamlNode& node, std::string_view what, double most) {
  double value = 0;
  const char* const end = node.scalar.data() + node.scalar.size();
  const auto read = std::from_chars(node.scalar.data(), end, value);
  if (node.kind == YamlNode::Kind::scalar && read.ec == std::errc() && read.ptr == end &&
      std::isfinite(value) && value > 0 && value <= most)
    return value;
  in.fail(node, fmt::format("{} must be a number above 0 and at most {}", what, most));
  return most;
}

void read_target(ValueReader& in, const YamlNode& node, PoolPolicy& policy) {
  TargetRule rule;
  if (!in.mapping(node, "a target", {"metric", "per_member", "of"})) return;
  const YamlNode* const metric = node.find("metric");
  const YamlNode* const per_member = node.find("per_member");
  if (!metric || !per_member)
    return in.fail(node, "a target needs metric, a name, and per_member, a number");
  rule.metric = in.short_text(*metric, "metric");
  rule.per_member = decimal(in, *per_member, "per_member", 1e12);
  if (const YamlNode* of = node.find("of"))
    rule.of =
        in.choice(*of, "of", {"sum", "mean"}) == 1 ? TargetRule::Of::mean : TargetRule::Of::sum;
  policy.targets.push_back(std::move(rule));
}

void read_threshold(ValueReader& in, const YamlNode& node, PoolPolicy& policy) {
  ThresholdRule rule;
  if (!in.mapping(node, "a threshold", {"metric", "up", "down"})) return;
  const YamlNode* const metric = node.find("metric");
  if (!metric) return in.fail(node, "a threshold needs metric, cpu, memory or gpu");
  (void)in.choice(*metric, "metric", {"cpu", "memory", "gpu"});
  rule.metric = metric->scalar;
  if (const YamlNode* up = node.find("up")) rule.up = decimal(in, *up, "up", 1);
  if (const YamlNode* down = node.find("down")) rule.down = decimal(in, *down, "down", 1);
  // Between them there must be a size at which neither holds, or the pool would swing.
  if (rule.down > 0.9 * rule.up)
    return in.fail(node, "down must be at most nine tenths of up, or the size would swing");
  policy.thresholds.push_back(std::move(rule));
}

void read_size(ValueReader& in, const YamlNode& root, PoolPolicy& policy) {
  if (const YamlNode* name = root.find("name")) policy.name = in.name(*name, "name");
  if (const YamlNode* min = root.find("min")) policy.min = in.number(*min, "min", 0, kMostMembers);
  const YamlNode* const max = root.find("max");
  if (!max) return in.fail(root, "a pool needs max, the number of members that it may have");
  policy.max = in.number(*max, "max", 1, kMostMembers);
  if (policy.min > policy.max)
    in.fail(*max, fmt::format("max, {}, is below min, {}", policy.max, policy.min));
}

void read_limits(ValueReader& in, const YamlNode& root, PoolPolicy& policy) {
  const auto seconds = [&](const char* key, std::uint32_t least, std::chrono::seconds& value) {
    if (const YamlNode* found = root.find(key))
      value = std::chrono::seconds(in.number(*found, key, least, kMostSeconds));
  };
  seconds("burst_interval", 1, policy.burst_interval);
  seconds("stale", 1, policy.stale);
  seconds("panic_window", 0, policy.panic_window);
  seconds("stabilisation", 0, policy.stabilisation);
  const auto members = [&](const char* key, std::uint32_t least, std::uint32_t& value) {
    if (const YamlNode* found = root.find(key)) value = in.number(*found, key, least, kMostMembers);
  };
  members("step_up", 0, policy.step_up);
  members("step_down", 0, policy.step_down);
  members("vote_limit", 0, policy.vote_limit);
  if (const YamlNode* votes = root.find("votes"))
    policy.votes = in.choice(*votes, "votes", {"sum", "largest"}) == 1 ? PoolPolicy::Votes::largest
                                                                       : PoolPolicy::Votes::sum;
}

}  // namespace

Result<PoolPolicy> read_pool_policy(std::string_view text, const std::string& file) {
  if (file.ends_with(".lua")) {
    auto script = PolicyScript::load(std::string(text), file);
    if (!script) return script.error();
    PoolPolicy policy;
    policy.script = std::move(*script);
    return policy;
  }
  const auto root = parse_yaml(text, file);
  if (!root) return root.error();
  ValueReader in(file);
  PoolPolicy policy;
  if (in.mapping(*root, "the pool",
                 {"name", "min", "max", "burst_interval", "stale", "panic_window", "stabilisation",
                  "step_up", "step_down", "vote_limit", "votes", "targets", "thresholds"})) {
    read_size(in, *root, policy);
    read_limits(in, *root, policy);
    const auto rules = [&](const char* key, auto read) {
      const YamlNode* const list = root->find(key);
      if (!list) return;
      if (list->items.size() > kMostRules)
        return in.fail(*list, fmt::format("{} has more than {} rules", key, kMostRules));
      for (const YamlNode* item : in.list(*list, key)) read(in, *item, policy);
    };
    rules("targets", read_target);
    rules("thresholds", read_threshold);
    if (const YamlNode* min = root->find("min"); min && policy.min == 0 && !may_be_empty(policy))
      in.fail(*min, kNobodySays);
  }
  if (in.error()) return *in.error();
  return policy;
}

}  // namespace bellows::pool
