// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows::pool {

/// Numbers from 0 to 1e9, one a line, without empty lines and with lines that begin with # left
/// out: one at least and `most` at most. invalid: "FILE:LINE: what is wrong".
Result<std::vector<double>> parse_numbers(std::string_view text, const std::string& file,
                                          std::size_t most);
Result<std::vector<double>> read_numbers(const std::string& file, std::size_t most);

}  // namespace bellows::pool
