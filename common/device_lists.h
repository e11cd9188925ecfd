// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows {

/// The variables that name GPUs, with commas between, as Slurm sets them for a step: each of its
/// tasks can see all the GPUs that it has on its node.
inline constexpr const char* kDeviceLists[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                               "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"};

}  // namespace bellows
