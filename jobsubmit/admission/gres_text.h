// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"

namespace bellows {

/// One item of a field such as tres_per_node: "gres:gpu:a100:2", "gres/gpu=2", "gpu:2", "nic".
struct GresItem {
  std::string name;  ///< lower case
  std::string type;  ///< empty: any
  std::uint64_t count = 1;
  std::string spelled;
};

/// Reads an item as Slurm does: a count may have a suffix, and 1k is 1024.
/// invalid: a sentence for the user, also for what Slurm takes although it reads something else
/// than what stands there.
Result<GresItem> parse_gres_item(std::string_view text);

}  // namespace bellows
