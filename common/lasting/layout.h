// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

/// What the two halves of this room both know of a container's directory.
namespace bellows::lasting {

inline constexpr const char* kLock = "lock";

/// A name comes from an option's grammar, or from a directory.
bool is_name(std::string_view name);

/// The job that says to have it.
std::optional<std::uint64_t> job_in(int directory);

/// busy.
Error in_use(const std::string& name, const std::optional<std::uint64_t>& job);

}  // namespace bellows::lasting
