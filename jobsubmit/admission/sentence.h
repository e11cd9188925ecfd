// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// A user's text, safe to show: short, and without bytes that move a terminal.
std::string shown(std::string_view text, std::size_t most = 64);

/// `did you mean "X"?`, or what there is when nothing is near.
std::string hint(std::string_view word, const std::vector<std::string>& known);

/// Minutes as Slurm writes a time limit: "4:00:00", "2-00:00:00", "unlimited".
std::string duration(std::uint32_t minutes);

}  // namespace bellows
