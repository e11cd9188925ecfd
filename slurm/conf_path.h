// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bellows {

/// The slurm.conf that Slurm's own commands use here: what SLURM_CONF names, else the one that
/// Slurm was built for, else the one that slurmd got from slurmctld.
std::string slurm_conf_path();

/// The file of this name beside another.
std::string beside(const std::string& path, const std::string& name);

/// Where a process with this environment finds the policy: what BELLOWS_CONF names, else
/// bellows.yaml beside slurm.conf.
std::string default_policy_path();

}  // namespace bellows
