// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/sbatch_values.h"

#include <slurm/slurm.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "common/text.h"
#include "jobsubmit/admission/admission.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

constexpr std::uint64_t kMostSeconds = std::uint64_t{INT_MAX};

std::optional<std::vector<std::uint64_t>> numbers(std::string_view text) {
  std::vector<std::uint64_t> found;
  for (std::string_view piece : split(text, ':')) {
    const auto number = parse_uint(piece);
    if (!number || *number > kMostSeconds) return std::nullopt;
    found.push_back(*number);
  }
  return found;
}

/// DAYS-[HOURS[:MINUTES[:SECONDS]]], or MINUTES[:SECONDS] or HOURS:MINUTES:SECONDS.
std::optional<std::uint64_t> parse_seconds(std::string_view text) {
  const auto dash = text.find('-');
  std::uint64_t total = 0;
  std::vector<std::uint64_t> units = {60, 1};
  if (dash != std::string_view::npos) {
    const auto days = parse_uint(text.substr(0, dash));
    if (!days || *days > kMostSeconds) return std::nullopt;
    total = *days * 86400;
    text.remove_prefix(dash + 1);
    if (text.empty()) return total;
    units = {3600, 60, 1};
  }
  const auto parts = numbers(text);
  if (!parts || parts->size() > 3) return std::nullopt;
  if (parts->size() == 3) units = {3600, 60, 1};
  for (std::size_t i = 0; i < parts->size(); ++i) total += (*parts)[i] * units[i];
  return total;
}

std::string prefixed(std::string_view list, std::string_view prefix) {
  std::string out;
  for (std::string_view piece : split(list, ',')) {
    if (!out.empty()) out += ',';
    if (!piece.starts_with(prefix)) out += prefix;
    out += piece;
  }
  return out;
}

}  // namespace

std::optional<std::uint32_t> parse_time_limit(std::string_view text) {
  const std::string word = to_lower(text);
  if (word == "-1" || word == "infinite" || word == "unlimited") return kUnlimited;
  const auto seconds = parse_seconds(text);
  if (!seconds || *seconds > kMostSeconds) return std::nullopt;
  if (*seconds == 0) return kUnlimited;
  return static_cast<std::uint32_t>((*seconds + 59) / 60);
}

std::optional<std::uint32_t> parse_count(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto number = parse_uint(text);
  if (!number || *number == 0 || *number > INT_MAX) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_nodes(std::string_view text) {
  const auto one = [](std::string_view number) -> std::optional<std::uint32_t> {
    std::uint64_t factor = 1;
    if (number.ends_with('k') || number.ends_with('K')) factor = 1024;
    if (number.ends_with('m') || number.ends_with('M')) factor = 1048576;
    if (factor > 1) number.remove_suffix(1);
    const auto nodes = parse_uint(number);
    if (!nodes || *nodes > INT_MAX / factor) return std::nullopt;
    return static_cast<std::uint32_t>(*nodes * factor);
  };
  const auto dash = text.find('-');
  const auto least = one(text.substr(0, dash));
  const auto most = dash == std::string_view::npos ? least : one(text.substr(dash + 1));
  if (!least || !most || *least > *most) return std::nullopt;
  return std::pair(*least, *most);
}

std::optional<std::uint32_t> count_hosts(std::string_view list) {
  if (list.find('/') != std::string_view::npos) return std::nullopt;
  const auto hosts = slurm_hostlist_create(std::string(list).c_str());
  if (!hosts) return std::nullopt;
  slurm_hostlist_uniq(hosts);
  const int count = slurm_hostlist_count(hosts);
  slurm_hostlist_destroy(hosts);
  if (count <= 0) return std::nullopt;
  return static_cast<std::uint32_t>(count);
}

bool is_memory(std::string_view text) {
  std::string unit = to_lower(text);
  if (unit.size() > 2 && unit.ends_with("b")) unit.pop_back();
  if (!unit.empty() && std::string_view("kmgt").find(unit.back()) != std::string_view::npos)
    unit.pop_back();
  return parse_uint(unit).has_value();
}

bool is_signal(std::string_view text) {
  const auto colon = text.find(':');
  if (colon != std::string_view::npos) {
    for (char flag : to_lower(text.substr(0, colon)))
      if (flag != 'b' && flag != 'r') return false;
    text.remove_prefix(colon + 1);
  }
  const auto at = text.find('@');
  if (at != std::string_view::npos &&
      parse_uint(text.substr(at + 1)).value_or(UINT16_MAX + 1) > UINT16_MAX)
    return false;
  std::string name = to_lower(text.substr(0, at));
  if (name.starts_with("sig")) name.erase(0, 3);
  if (const auto number = parse_uint(name)) return *number > 0;
  static constexpr std::string_view kNames[] = {"hup",  "int",  "quit", "abrt", "kill", "alrm",
                                                "term", "usr1", "usr2", "urg",  "cont", "stop",
                                                "tstp", "ttin", "ttou", "xcpu"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string spell_gpu_option(std::string_view value) {
  std::string out;
  for (std::string_view piece : split(value, ',')) {
    if (!out.empty()) out += ',';
    out += BELLOWS_GRES "gpu:";
    out += piece;
  }
  return out;
}

std::string spell_gres(std::string_view value) {
  return to_lower(value) == "none" ? "" : prefixed(value, BELLOWS_GRES);
}

}  // namespace bellows
