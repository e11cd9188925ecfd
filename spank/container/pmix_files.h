// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// The directory in slurmd's spool where a step's PMIx server shares data with its ranks, brought
/// into a container: that has no spool directory, so it is mounted in its /tmp, and variables that
/// name it must name the new place. A resource.
class PmixFiles {
 public:
  /// `directory`: as PMIX_SERVER_TMPDIR says; empty: the step has no PMIx server. One whose last
  /// name is none, or dots, is none of PMIx's.
  explicit PmixFiles(std::string directory);

  explicit operator bool() const { return !from_.empty(); }
  const std::string& from() const { return from_; }
  std::string to() const { return "/tmp/" + name_; }

  /// In the host's mount namespace. A directory that is not the user's alone, as slurmstepd makes
  /// it, is none of PMIx's: then there is nothing to do any more.
  Status open();
  /// In the container's, in a copy of the task's own.
  Status place() const;

 private:
  std::string from_;
  std::string name_;  ///< in the container's /tmp
  Fd mount_;
};

}  // namespace bellows::container
