// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace bellows {

/// GPUs in a GRES text: the sum over types, of "gpu:2(IDX:0-1)", "gpu:a100:4", "gres:gpu:8" or
/// "gres/gpu=8,gres/gpu:a100=8" (where the untyped total wins). Other resources are left out.
/// A count that is none, or is past 32 bits, counts as 0.
std::uint32_t gpus_in_gres(std::string_view text);

}  // namespace bellows
