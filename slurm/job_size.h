// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "common/result.h"
#include "slurm/compat.h"
#include "slurm/gres.h"

namespace bellows {

/// What a job asked for, as far as another size depends on it.
struct AskedSize {
  std::string tres_per_job;   ///< e.g. "gres:gpu:4"
  std::string tres_per_node;  ///< e.g. "gres:gpu:2"
  std::uint16_t cpus_per_task = 1;
  std::string cpus_per_tres;  ///< e.g. "gres:gpu:2": CPUs for each GPU
};

/// Fills in what makes a waiting job ask for `gpus`: also its tasks, CPUs and nodes. `tres` keeps
/// text that `desc` then points to. Slurm wants the field that the job was submitted with; the
/// other one fails. In a header, since plugins must not link libslurm and others must.
inline Status set_job_size(std::uint32_t job, const AskedSize& asked, std::uint32_t gpus,
                           job_desc_msg_t& desc, std::string& tres) {
  std::uint32_t nodes = 0;
  std::uint32_t per_node = gpus_in_gres(asked.tres_per_node);
  if (per_node > 0) {
    if (gpus > per_node && gpus % per_node != 0)
      return Error{ErrorKind::invalid,
                   fmt::format("job {} asks for {} GPUs on each node, and {} is not a multiple of "
                               "that; submit it with --gpus to move freely",
                               job, per_node, gpus)};
    nodes = gpus < per_node ? 1 : gpus / per_node;
    tres = spell_gpus(gpus / nodes);
    desc.tres_per_node = tres.data();
  } else {
    tres = spell_gpus(gpus);
    desc.tres_per_job = tres.data();
  }
  desc.num_tasks = gpus;
  desc.min_cpus = cpus_for(gpus, asked.cpus_per_task, asked.cpus_per_tres);
  // A range of nodes would make Slurm spread the job as widely as it can; 0 is "no limit".
  desc.min_nodes = nodes == 0 ? 1 : nodes;
  desc.max_nodes = nodes;
  return {};
}

}  // namespace bellows
