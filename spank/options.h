// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/container/spec.h"
#include "common/result.h"

namespace bellows::spank {

/// NAME[:VERSION] as the user typed it. A value.
struct FrameworkOption {
  std::string name;
  std::string version;  ///< empty: the site's default

  bool operator==(const FrameworkOption&) const = default;
};

/// Only the syntax: whether the site offers it is for slurmctld to say. Letters, digits and
/// `._+-`, beginning with a letter, digit or `_`, at most 64 characters each.
Result<FrameworkOption> parse_framework(std::string_view text);

/// What the plugin's line in plugstack.conf may set. A value.
struct Settings {
  std::string run_dir = "/run/bellows";  ///< root's directory for the contracts on this node
  std::string model_store = "/run/bellows-models/control";  ///< bellows-modeld's own socket
  container::Site site;
};

/// Reads the arguments of the plugin's line in plugstack.conf. A wrong one must not stop a daemon:
/// it is left out, its default holds, and a sentence for the log is added to `complaints`.
Settings read_settings(int count, char** arguments, std::vector<std::string>& complaints);

/// In spank_job_env: what all --container options of sbatch, salloc or srun say together, as
/// container::spec_text writes it. Slurm itself passes on only the last value of each option, and a
/// relative path as it was typed.
inline constexpr const char* kContainerVariable = "_SLURM_SPANK_OPTION_bellows_container";
/// From srun to its step's slurmstepd, the same. srun --export=NONE keeps names that begin so.
inline constexpr const char* kStepVariable = "SLURM_BELLOWS_CONTAINER";

/// "_SLURM_SPANK_OPTION_bellows_gpus_range" for "gpus-range".
std::string option_variable(std::string_view option);

/// The environment variables by which sbatch, salloc and srun hand their options on. Slurm exports
/// them into the job, where a nested sbatch would take them for its own options.
const std::vector<std::string>& option_variables();

}  // namespace bellows::spank
