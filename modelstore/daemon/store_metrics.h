// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/gpu_tier.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"

namespace bellows {

/// The daemon's counters and sizes, as Prometheus reads them in a text. `gpus`: null where models
/// are not on GPUs.
std::string metrics_text(const ModelRegistry& registry, const MemoryTier& tier, const GpuTier* gpus,
                         const ClientDesk& clients);

}  // namespace bellows
