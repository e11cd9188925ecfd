// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace bellows {

/// The variables that name GPUs, with commas between, as Slurm sets them for a step: each of its
/// tasks can see all the GPUs that it has on its node.
inline constexpr const char* kDeviceLists[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                               "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"};

/// What one of several processes gets of such a list, so that it sees one GPU.
enum class DeviceShare {
  entry,  ///< its own entry
  first,  ///< 0: another list leaves one GPU
  whole   ///< all: its own entry of another list is the number of one of them
};

/// Slurm may set the lists of all makes. On GPUs of AMD's, what ROCR_VISIBLE_DEVICES leaves is
/// numbered anew for GPU_DEVICE_ORDINAL and CUDA_VISIBLE_DEVICES, so no two of them may be
/// narrowed; those of NVIDIA's see CUDA_VISIBLE_DEVICES only. `cuda`, `rocr`: whether these two
/// name any.
constexpr DeviceShare device_share(std::string_view name, bool cuda, bool rocr) {
  const bool ordinal = name == "GPU_DEVICE_ORDINAL";
  if (cuda && (ordinal || name == "ROCR_VISIBLE_DEVICES")) return DeviceShare::whole;
  return rocr && ordinal ? DeviceShare::first : DeviceShare::entry;
}

}  // namespace bellows
