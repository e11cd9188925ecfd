// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows::container {

/// A directory where a step's PMIx server shares data with its ranks, brought into a job's view.
///
/// One is in slurmd's spool, which a container does not have: it is mounted in its /tmp, and
/// variables that name it must name the new place. The other, the session directory, is in the
/// host's /tmp, which a job's own hides: it is mounted in the same place. The server of PMIx 5 puts
/// files there when a rank comes; an earlier one does not, and any directory will do. A resource.
class PmixFiles {
 public:
  /// `directory`: as PMIX_SERVER_TMPDIR says; empty: the step has no PMIx server. One whose last
  /// name is none, or dots, is none of PMIx's.
  explicit PmixFiles(std::string directory);
  /// `directory`: in /tmp; empty: the step has no PMIx server. `shared`: the server has files for
  /// the ranks there.
  static PmixFiles session(const std::string& directory, bool shared);

  explicit operator bool() const { return !from_.empty(); }
  const std::string& from() const { return from_; }
  std::string to() const { return "/tmp/" + name_; }

  /// In the host's mount namespace. A directory that is not the user's alone, as slurmstepd makes
  /// it, is none of PMIx's: then there is nothing to do any more.
  Status open();
  /// In the view, which must be a copy of the task's own if there is anything to mount. Open MPI
  /// wants the session directory also where PMIx keeps nothing in it: then it is made.
  Status place() const;

 private:
  std::string from_;
  std::string name_;     ///< in the view's /tmp
  std::string session_;  ///< the session directory
  Fd mount_;
};

}  // namespace bellows::container
