// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// Members of a pool, at most.
inline constexpr std::uint32_t kMostPoolMembers = 10'000;

/// Letters, digits, "-" and "_", no "-" first; at most 40, since a job of Slurm's is named after
/// it. What is wrong with the name, or nothing.
std::string pool_name_complaint(std::string_view name);

/// The value of --pool: NAME in a member's job, NAME:MIN-MAX in the keeper's. A value.
struct PoolOption {
  std::string name;
  std::uint32_t min = 0;  ///< members of the keeper's pool, at least; a member's is 0
  std::uint32_t max = 0;  ///< at most, from 1 to kMostPoolMembers; a member's is 0

  /// invalid: says which part of the text is wrong and gives the accepted form.
  static Result<PoolOption> parse(std::string_view text);
  bool is_keeper() const { return max > 0; }
  std::string to_string() const;

  bool operator==(const PoolOption&) const = default;
};

}  // namespace bellows
