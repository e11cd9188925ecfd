// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/result.h"

namespace bellows {

/// RUN_DIR/launcher.active: while it exists, the launcher has not recorded how its run ended, and
/// the node's Slurm plugin requeues the job if the batch script ends.
class ActiveMarker {
 public:
  explicit ActiveMarker(const std::string& run_dir)
      : path_(run_dir + "/launcher.active"), plan_(run_dir + "/launcher.plan") {}
  Status write() const;
  /// RUN_DIR/launcher.plan: the size at which the plugin is then to requeue it; none: as it is.
  void plan(std::optional<std::uint32_t> gpus) const;
  void remove() const;

 private:
  std::string path_;
  std::string plan_;
};

}  // namespace bellows
