// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "checkpoint/protocol/attempt_name.h"

namespace bellows {

/// CHECKPOINT_DIR/finished-RUN: the program creates it to say that it has finished, and is then not
/// started again; its launcher creates it too, just before it ends. A run obeys the file of the run
/// from which it took the directory, and ignores those of any other run, which may be on a node
/// that was cut off. CHECKPOINT_DIR/finished-JOBID, for a program that knows only its job's id, is
/// obeyed by all of the job's runs.
class FinishedFile {
 public:
  FinishedFile(const std::string& checkpoint_dir, const RunName& run);

  /// Of this run.
  const std::string& path() const { return path_; }
  /// The file by which this run has finished.
  std::optional<std::string> found() const;
  /// The same of the run before it.
  std::optional<std::string> found_of(const RunName& before) const;
  /// Removes finished-JOBID of an older job with the same number, which is older than this one's
  /// submission. One that is not is of a run of this job that slurmctld lost.
  void drop_older(std::time_t submitted) const;

  /// Makes it unless it is there. False: it can't be made.
  bool leave();
  /// Removes what leave() has made.
  void withdraw();

 private:
  std::string dir_;
  std::string path_;
  std::string of_all_runs_;
  bool own_ = false;
};

}  // namespace bellows
