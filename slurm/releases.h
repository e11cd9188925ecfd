// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What differs between Slurm releases and is known from their number alone, for code that uses
/// nothing else of Slurm's headers. The rest is in compat.h.

#include <slurm/slurm_version.h>

/// What comes before the name of a GRES where Slurm lists TRES, as in TresPerJob. It must be the
/// right one: 22.05 takes the other in an update and changes nothing, and 23.11 refuses the other.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
#define BELLOWS_GRES "gres/"
/// What Slurm looks for, anywhere in such a list, to find the next GRES.
#define BELLOWS_GRES_MARK "gres"
#else
#define BELLOWS_GRES "gres:"
#define BELLOWS_GRES_MARK "gres:"
#endif

namespace bellows {

/// With --distribution=arbitrary, srun counts the nodes in --nodelist and refuses --nodes. Before,
/// it takes the number of the job's nodes from its environment.
inline constexpr bool kSrunCountsNodes = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0);

/// slurmd knows each run of a job by an id of its own, its SLUID, which a requeue renews; before, a
/// requeued job is the same to it.
inline constexpr bool kRunsHaveIds = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0);

/// slurmctld marks a job that it gives a grace time, and requeues it at the next end of its script,
/// however that ends; a requeue by others meanwhile leaves the mark to a later run.
inline constexpr bool kRemembersGrace = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0);

}  // namespace bellows
