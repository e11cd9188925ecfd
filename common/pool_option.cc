// SPDX-License-Identifier: Apache-2.0
#include "common/pool_option.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kLongestName = 40;

Error bad_range(std::string_view range) {
  return Error{ErrorKind::invalid,
               fmt::format("\"{}\" is no range of members; write NAME:MIN-MAX, such as web:1-8, "
                           "with at most {}",
                           one_line(range, 40), kMostPoolMembers)};
}

}  // namespace

std::string pool_name_complaint(std::string_view name) {
  const bool is_name =
      !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
        return is_alphanumeric(c) || c == '-' || c == '_';
      });
  if (!is_name)
    return "the name of a pool has letters, digits, \"-\" and \"_\": " + one_line(name, 60);
  if (name.size() > kLongestName)
    return fmt::format("the name of a pool has at most {} characters", kLongestName);
  return "";
}

Result<PoolOption> PoolOption::parse(std::string_view text) {
  const auto colon = text.find(':');
  PoolOption pool{.name = std::string(text.substr(0, colon))};
  if (std::string complaint = pool_name_complaint(pool.name); !complaint.empty())
    return Error{ErrorKind::invalid, std::move(complaint)};
  if (colon == std::string_view::npos) return pool;
  const std::string_view range = text.substr(colon + 1);
  const auto dash = range.find('-');
  if (dash == std::string_view::npos) return bad_range(range);
  const auto min = parse_uint(range.substr(0, dash));
  const auto max = parse_uint(range.substr(dash + 1));
  if (!min || !max || *max == 0 || *max > kMostPoolMembers || *min > *max) return bad_range(range);
  pool.min = static_cast<std::uint32_t>(*min);
  pool.max = static_cast<std::uint32_t>(*max);
  return pool;
}

std::string PoolOption::to_string() const {
  return is_keeper() ? fmt::format("{}:{}-{}", name, min, max) : name;
}

}  // namespace bellows
