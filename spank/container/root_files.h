// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

/// Small files of a root that a descriptor stands for.
namespace bellows::container {

/// The names in a directory that begin with `prefix`, sorted; none where there is no such
/// directory.
Result<std::vector<std::string>> list_in_root(int root, const std::string& path,
                                              std::string_view prefix = {});

/// Nothing where there is no such file; an error (invalid) for one longer than `limit`.
Result<std::optional<std::string>> read_in_root(int root, const std::string& path,
                                                std::size_t limit);

}  // namespace bellows::container
