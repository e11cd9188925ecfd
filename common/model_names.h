// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// Models that a job may name, at most.
inline constexpr std::size_t kMostModels = 16;

/// Whether a model can be called so: words of letters, digits, "_", "-" and "." with "/" between
/// them, none with "." first, 255 characters at most. bellows-modeld takes the same names.
bool is_model_name(std::string_view name);

/// The value of --model: NAME[,NAME...], each once. invalid: says which part is wrong.
Result<std::vector<std::string>> parse_model_names(std::string_view text);

/// The value of --model-on, "gpu" or "memory": whether it is on GPUs, too.
Result<bool> parse_model_on(std::string_view text);

}  // namespace bellows
