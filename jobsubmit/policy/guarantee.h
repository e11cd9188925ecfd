// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace bellows {

/// GPUs that a tenant's elastic jobs get in each pool that bellowsd divides, whatever others want.
struct Guarantee {
  std::uint32_t any = 0;                         ///< of types that are not named
  std::map<std::string, std::uint32_t> of_type;  ///< by Slurm's name of a type

  std::uint32_t of(const std::string& type) const {
    const auto named = of_type.find(type);
    return named == of_type.end() ? any : named->second;
  }
};

}  // namespace bellows
