// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "slurm/releases.h"

namespace bellows {

/// "gres:gpu:2" or "gres:gpu:a100:2", as this Slurm spells it.
std::string spell_gpus(std::uint64_t count, std::string_view type = {});

/// GPUs in a GRES text: the sum over types, of "gpu:2(IDX:0-1)", "gpu:a100:4", "gres:gpu:8" or
/// "gres/gpu=8,gres/gpu:a100=8" (where the untyped total wins). Other resources are left out.
/// A count that is invalid, or does not fit 32 bits, counts as 0.
std::uint32_t gpus_in_gres(std::string_view text);

/// The CPUs of so many tasks with a GPU each, where `cpus_per_tres` has those of a GPU ("gpu:2") or
/// is empty. Slurm (up to 25.11 at least) works out the CPUs for the GPUs when it first looks for a
/// place, and keeps that number for the life of the job: one that has grown must ask for them
/// itself, or no node ever gives enough.
std::uint32_t cpus_for(std::uint32_t gpus, std::uint32_t cpus_per_task,
                       std::string_view cpus_per_tres);

}  // namespace bellows
