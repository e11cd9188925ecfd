// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// A node that loads models which a job named.
struct NodeModels {
  std::string node;
  std::uint64_t read_bytes = 0;
  std::uint64_t bytes = 0;  ///< of those whose size is known by now; 0: of none
};

/// What `bellows model progress` printed on the nodes: lines of NODE READ BYTES. What is none, or
/// is of another node, is left out.
std::vector<NodeModels> parse_model_progress(std::string_view text,
                                             const std::set<std::string>& nodes);

/// "12.0 MiB of 100.0 MiB"; "1.0 MiB" while no size is known.
std::string progress_text(std::uint64_t read_bytes, std::uint64_t bytes);

}  // namespace bellows
