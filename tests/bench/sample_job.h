// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "slurm/gres.h"

/// The job that the benchmarks of submission submit: what a user's sbatch sends, in size and kind.
namespace bellows {

inline const char* const kSampleFramework = "_SLURM_SPANK_OPTION_bellows_framework=framework7";
inline const char* const kSampleRange = "_SLURM_SPANK_OPTION_bellows_gpus_range=1-8";
inline const char* const kSampleSize = BELLOWS_GRES "gpu:2";

/// A login shell's, with modules loaded.
inline std::vector<std::string> sample_environment() {
  std::vector<std::string> entries = {"PATH=/usr/local/bin:/usr/bin:/bin",
                                      "HOME=/home/alice",
                                      "USER=alice",
                                      "LANG=C.UTF-8",
                                      "BELLOWS_AGENT=/home/alice/agent",
                                      "SEED=8"};
  while (entries.size() < 60)
    entries.push_back("MODULE_" + std::to_string(entries.size()) +
                      "_ROOT=/software/modules/2022/toolchain/gcc-12.2/library/1.0.4/lib64");
  return entries;
}

inline std::string sample_script() {
  std::string script = "#!/bin/bash\n#SBATCH --framework=framework7\n#SBATCH --gpus-range=1-8\n";
  while (script.size() < 2000) script += "# a line of the user's own about what this job is for\n";
  return script + "exec bellows run -- ./train\n";
}

}  // namespace bellows
