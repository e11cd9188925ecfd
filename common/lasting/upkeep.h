// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/lasting/lasting.h"
#include "common/result.h"

/// What there is of a user's containers, and how they go. As their user: what is in them is never
/// looked at with anybody else's rights.
namespace bellows::lasting {

/// A value.
struct Listed {
  std::string name;
  std::string image;                 ///< empty: it is not known
  std::uint64_t bytes = 0;           ///< on the disk
  std::int64_t used = 0;             ///< when it was last, in seconds since 1970
  bool in_use = false;               ///< by a job
  std::optional<std::uint64_t> job;  ///< which one, as far as that is known
};

/// By name.
Result<std::vector<Listed>> list(int users);

/// What all of them hold.
std::uint64_t bytes_of_all(int users);

/// busy: a job uses it. not_found: it is not there.
Status remove(int users, const std::string& name);

/// Those that no job has used since `before`, in seconds since 1970; and what a removal left that
/// was interrupted. The names of those that went.
Result<std::vector<std::string>> remove_older(int users, std::int64_t before);

}  // namespace bellows::lasting
