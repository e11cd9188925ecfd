// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace bellows {

/// CHECKPOINT_DIR/finished-JOBID: while it is there the job is never trained again. The program
/// makes it to say that it has finished; so does its launcher while that is about to end.
class FinishedFile {
 public:
  FinishedFile(const std::string& checkpoint_dir, std::uint32_t job);

  const std::string& path() const { return path_; }
  bool exists() const;
  /// Removes that of an older job with the same number, which is older than this one's submission.
  /// One that is not is of a run of this job that slurmctld lost.
  void drop_older(std::time_t submitted) const;

  /// Makes it unless it is there. False: it can't be made.
  bool leave();
  /// Removes what leave() has made.
  void withdraw();

 private:
  std::string path_;
  bool own_ = false;
};

}  // namespace bellows
