// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "slurm/compat.h"

namespace bellows {

/// Of spank_job_env. Every script and SPANK plugin that slurmd runs as root before and after a job
/// gets it as environment. Linux starts no program with a text of 128 KiB in that, and slurmd puts
/// it together in a time that grows with the square of the entries; the rest of it Slurm bounds
/// itself, with 40 KiB at most.
constexpr std::uint32_t kMostSpankEntries = 256;
constexpr std::size_t kMostSpankEntryBytes = 64 * 1024;
constexpr std::size_t kMostSpankBytes = 256 * 1024;

/// Of what a batch script is started with, which slurmctld keeps and copies for every update.
constexpr std::uint32_t kMostVariables = 16384;
constexpr std::uint32_t kMostArguments = 131072;
/// What Linux gives a program, where its stack is limited to the usual 8 MiB.
constexpr std::size_t kMostProgramBytes = 2 * 1024 * 1024;

/// Why a submission or an update is too large, as a sentence for the user; nothing if it isn't.
/// Slurm holds its locks while it asks us, and bounds what users send only afterwards, if at all,
/// so this comes before anything else. It looks at no more than the bounds allow.
std::optional<std::string> over_bounds(const job_desc_msg_t& desc);

}  // namespace bellows
