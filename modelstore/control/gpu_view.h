// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "modelstore/wire/gpu_lines.h"

namespace bellows {

/// A model on a GPU.
struct ModelOnGpu {
  std::string tenant;  ///< whose it is; "": a job is not told
  std::string name;
  modelwire::OnGpu state = modelwire::OnGpu::absent;
  std::uint64_t bytes = 0;         ///< that it takes there; 0: not known yet
  std::uint64_t copied_bytes = 0;  ///< while it is loaded
  std::uint64_t references = 0;
  std::uint64_t waiting = 0;
  std::optional<Error> trouble;  ///< why its last copy failed
};

/// A GPU of a job, as far as models go. In bytes.
struct GpuForModels {
  std::string job;      ///< or the path of a socket; "": of the job that asks
  std::string tenant;   ///< of the job; "": it has ended, or asks itself
  std::string address;  ///< on the PCI bus, "0000:3b:00.0"
  std::uint64_t budget = 0;
  std::uint64_t used = 0;
  std::uint64_t evicting = 0;  ///< of used
  std::vector<ModelOnGpu> models;

  /// Of the budget.
  std::uint64_t left() const { return budget > used ? budget - used : 0; }
};

/// Puts what a line tells behind what the lines before it told. unavailable: it follows on none.
Status take_line(std::vector<GpuForModels>& gpus, const modelwire::GpuEntry& line);
Status take_line(std::vector<GpuForModels>& gpus, const modelwire::GpuLine& line);

}  // namespace bellows
