// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.h"

namespace bellows {

/// Where the ranks of a job are: as many as GPUs, on so many nodes.
struct GpuLayout {
  std::uint32_t nodes = 0;
  std::uint32_t gpus = 0;

  bool operator==(const GpuLayout&) const = default;
};

/// On as few nodes as can be.
GpuLayout packed_layout(std::uint32_t gpus, std::uint32_t gpus_per_node);

/// One measured configuration of a job. Times in seconds, each a mean over steps.
struct StepSample {
  GpuLayout layout;
  std::uint32_t local_batch = 0;  ///< samples that one rank takes through the network at once
  double compute_s = 0;           ///< forward and backward; 0: not measured
  double step_s = 0;              ///< with the exchange of gradients
};

/// invalid: not between 10 ns and 30 years, not a number, or more computing than the step took.
Status check_sample(const StepSample& sample);

/// How long a step of synchronous data-parallel training takes: the model of Qiao et al., "Pollux:
/// Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning" (OSDI 2021), section 3.2.
/// Computing grows with the local batch; the exchange of gradients has a constant and a part for
/// each rank after the second, of their own inside a node and between nodes; the two overlap by
/// `gamma`, from 1 (not at all) to 10 (all but wholly). Seconds.
struct StepTime {
  double compute_constant = 0;
  double compute_per_sample = 0;
  double between_nodes = 0;
  double between_nodes_per_rank = 0;
  double inside_node = 0;
  double inside_node_per_rank = 0;
  double gamma = 1;
  bool saw_inside_node = false;  ///< ranks that share a node
  bool saw_between_nodes = false;

  /// Whether it follows from a sample of this kind: of one GPU, of one node or of several.
  bool knows(const GpuLayout& layout) const;
  double compute_s(std::uint32_t local_batch) const;
  double exchange_s(const GpuLayout& layout) const;
  /// Of a step whose gradients come from `passes` local batches on each rank, one after another.
  double step_s(const GpuLayout& layout, std::uint32_t local_batch, std::uint32_t passes) const;
};

/// The StepTime nearest to the samples, by the squared logarithm of the ratios. What no sample says
/// anything about is taken to cost next to nothing, so that a job seems to scale perfectly until it
/// has been seen to scale otherwise. invalid: no samples,
/// or one that can't be.
/// The search begins at `start`, if there is one.
Result<StepTime> fit_step_time(const std::vector<StepSample>& samples,
                               const std::optional<StepTime>& start = {});

}  // namespace bellows
