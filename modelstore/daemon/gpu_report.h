// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/gpu_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/wire/gpu_lines.h"

namespace bellows {

/// The line before: of a GPU, or of a model there.
struct GpuCursor {
  std::optional<GpuPlace> place;  ///< nothing: of none
  std::string tenant, name;       ///< the model's; "": the line was the GPU's own
};

/// What the job's own socket tells: of its GPUs, and of models there that it sees by their names.
/// What else is there counts, and has no line. Nothing: there is no further line.
std::optional<modelwire::GpuEntry> gpu_entry_after(const ModelRegistry& registry,
                                                   const GpuTier& gpus, const ServedJob& job,
                                                   std::uint64_t gpu, const std::string& name);

/// What the daemon's own socket tells, of the GPUs of all jobs; those that have ended have lines
/// until their memory is free. Models that were removed have none, and count.
std::optional<modelwire::GpuLine> gpu_line_after(const ModelRegistry& registry, const GpuTier& gpus,
                                                 const ClientDesk& clients,
                                                 const GpuCursor& cursor);

}  // namespace bellows
