// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace bellows {

/// What a job says about its size, in Slurm's own spelling. Nothing: not said.
struct Sizes {
  std::optional<std::string> per_job;     ///< --gpus: "gres:gpu:4", "gres:gpu:a100:4"
  std::optional<std::string> per_node;    ///< --gpus-per-node and --gres: "gpu:2,nic:1"
  std::optional<std::string> per_socket;  ///< --gpus-per-socket
  std::optional<std::string> per_task;    ///< --gpus-per-task
  std::optional<std::uint32_t> tasks;
  std::optional<std::uint32_t> min_nodes;
  std::optional<std::uint32_t> max_nodes;
  std::optional<std::uint32_t> tasks_per_node;
  std::optional<std::uint32_t> tasks_per_gpu;
  std::optional<std::uint32_t> min_cpus;   ///< of the whole job
  std::optional<std::uint32_t> node_cpus;  ///< --mincpus, or what Slurm makes of --mem
  std::uint32_t cpus_per_task = 1;
  std::uint32_t cpus_per_gpu = 0;  ///< 0: not said
};

/// What a job will say after an update; what that leaves out stays.
Sizes merged(const Sizes& now, const Sizes& update);

/// The GPUs that a Sizes adds up to.
struct GpuRequest {
  enum class Form { per_job, per_node, per_task, per_gpu_tasks };

  std::uint32_t gpus = 0;
  Form form = Form::per_job;
  std::optional<std::uint32_t> nodes;  ///< where the GPUs go by them: the one number that fits
  std::string type;                    ///< "a100", or empty for any
  std::vector<std::string> types;      ///< each that it names; "" among them for GPUs of any type
  bool mixed = false;          ///< more than one type, or a total beside a number for each node
  bool for_tasks = false;      ///< per_task names some of them
  std::string other_per_node;  ///< what per_node asks for besides GPUs
  std::string other_per_task;
  std::string option;  ///< as the user wrote it, for messages: "--gpus=4"
};

/// The GPUs that Slurm gives, by every spelling; a field of zeros is as good as none. Nothing when
/// no GPU is asked for.
/// invalid: a sentence for the user. Shares of GPUs and sockets can't be counted in GPUs, and what
/// Slurm would read otherwise than it looks, or give more GPUs for, is not taken.
Result<std::optional<GpuRequest>> count_gpus(const Sizes& sizes);

/// Whether an update changes what it seems to change: Slurm takes out of a field only what another
/// number of the same name and type replaces, or all of it for an empty text.
Status keeps_fields(const Sizes& now, const Sizes& update);

/// A field of Sizes with the type added to GPUs that have none; everything else as it was.
std::string with_type(std::string_view field, std::string_view type);

}  // namespace bellows
