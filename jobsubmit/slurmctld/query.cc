// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/slurmctld/query.h"

#include <fmt/core.h>

#include "common/text.h"
#include "jobsubmit/admission/sentence.h"

namespace bellows {
namespace {

constexpr std::string_view kMark = "bellows-status/1 ";
/// The last word, for it may have spaces.
constexpr std::string_view kProblem = "problem=";

/// False: a word that no answer has.
bool take(PolicyStatus& status, std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (key == "digest") {
    status.digest = value;
    return true;
  }
  if (key == "controller") {
    status.controller = value;
    return true;
  }
  if (key.starts_with("other") && !status.other) status.other.emplace();
  if (key == "other" || key == "other_digest") {
    (key == "other" ? status.other->host : status.other->digest) = value;
    return true;
  }
  const auto number = parse_uint(value);
  if (!number || *number > INT64_MAX) return false;
  if (key == "since") status.since = static_cast<std::int64_t>(*number);
  if (key == "enabled") status.enabled = *number != 0;
  if (key == "tenants") status.tenants = *number;
  if (key == "lua") status.lua = *number != 0;
  if (key == "people") status.people_known = *number != 0;
  if (key == "other_since") status.other->since = static_cast<std::int64_t>(*number);
  return true;
}

}  // namespace

bool asks_status(const char* const* entries, std::uint32_t count) {
  for (std::uint32_t i = 0; entries && i < count; ++i)
    if (entries[i] && entries[i] == kStatusQuery) return true;
  return false;
}

std::string answer_status(const PolicyWatcher::State& state) {
  std::string line(kMark);
  const Policy* policy = state.policy.get();
  if (policy)
    line += fmt::format("digest={} since={} enabled={:d} tenants={} ", policy->digest, state.since,
                        policy->enabled, policy->tenants.size());
  if (policy && policy->controller)
    line += fmt::format("controller={} ", policy->controller->address.to_string());
  if (const PolicyRecord* other = state.other.get())
    line += fmt::format("other={} other_digest={} other_since={} ", other->host, other->digest,
                        other->since);
  line += fmt::format("lua={:d} people={:d} {}", state.hook != nullptr,
                      !policy || state.people != nullptr, kProblem);
  return line + shown(state.problem, kMostAnswer - line.size());
}

std::optional<PolicyStatus> parse_status(std::string_view text) {
  const auto begin = text.find(kMark);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + kMark.size());
  text = text.substr(0, text.find('\n'));
  PolicyStatus status;
  while (!text.starts_with(kProblem)) {
    const auto space = text.find(' ');
    if (space == std::string_view::npos || !take(status, text.substr(0, space)))
      return std::nullopt;
    text.remove_prefix(space + 1);
  }
  status.problem = trim(text.substr(kProblem.size()));
  return status;
}

}  // namespace bellows
