// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/slurm/conf.h"

namespace bellows {

/// One line of a configuration file that is to be another.
struct ConfChange {
  ConfPlace place;       ///< of an added line only the file
  std::string old_line;  ///< empty: a line is added
  std::string new_line;  ///< empty: the line is removed
  std::string why;
};

struct SetupPlan {
  std::vector<ConfChange> changes;
  std::vector<std::string> notes;  ///< what a person should know or do besides
};

/// How a machine's Slurm is configured.
struct SlurmSetup {
  SlurmConf slurm;
  SlurmConf cgroup;
  std::string plugstack_path;
  std::vector<PlugstackLine> plugstack;
  std::string slurm_plugins;    ///< where Slurm looks without PluginDir
  std::string bellows_plugins;  ///< where the plugins of Bellows were installed
};

/// Which lines make Slurm load Bellows, with what the files say already kept. With all of them
/// changed the plan has no changes. `exists` tells whether there is a file.
SetupPlan plan_setup(const SlurmSetup& setup,
                     const std::function<bool(const std::string&)>& exists);

}  // namespace bellows
