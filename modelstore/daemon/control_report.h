// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/gpu_report.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"
#include "modelstore/wire/control_lines.h"

namespace bellows {

/// What the daemon's own socket tells of the store. Changes nothing; each call takes a time that
/// grows with the number of models and of jobs, and returns one line.
class ControlReport {
 public:
  /// `gpus`: null where models are not on GPUs.
  ControlReport(const ModelRegistry& registry, const MemoryTier& tier, const GpuTier* gpus,
                const ClientDesk& clients)
      : registry_(registry), tier_(tier), gpus_(gpus), clients_(clients) {}

  /// The model behind this one, by tenant and name. Nothing: there is none.
  std::optional<modelwire::ModelLine> model_after(const std::string& tenant,
                                                  const std::string& name) const;
  /// Of a model that is there.
  modelwire::ModelLine line_of(ModelId model) const;
  /// All, and the tenant behind this one.
  modelwire::StoreLine store(const std::string& tenant) const;
  /// Who has the model, behind this job. Nothing: no other.
  std::optional<modelwire::HolderLine> holder_after(ModelId model, const std::string& job) const;
  /// The line behind this one, of the GPUs of all jobs. Nothing: there is none.
  std::optional<modelwire::GpuLine> gpu_after(const GpuCursor& cursor) const {
    return gpus_ ? gpu_line_after(registry_, *gpus_, clients_, cursor) : std::nullopt;
  }

 private:
  const ModelRegistry& registry_;
  const MemoryTier& tier_;
  const GpuTier* gpus_;
  const ClientDesk& clients_;
};

}  // namespace bellows
