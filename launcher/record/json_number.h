// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "common/result.h"

namespace bellows {

/// corrupt: the record has no such entry, or it is not a number from 0 on.
inline Result<std::uint64_t> whole_number_in(const nlohmann::json& record, const char* key) {
  const auto number = record.find(key);
  if (number == record.end() || !number->is_number_unsigned())
    return Error{ErrorKind::corrupt, fmt::format("its \"{}\" is not a whole number", key)};
  return number->get<std::uint64_t>();
}

}  // namespace bellows
