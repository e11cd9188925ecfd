// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Which of several bellowsd decides: the one that has the lock on a file that all of them see, as
/// in slurmctld's StateSaveLocation. A lock goes with its process, whatever ends that.
class Leadership {
 public:
  explicit Leadership(std::string path) : path_(std::move(path)) {}

  /// Whether this process decides now; asks again each time until it does.
  /// Errors: the file cannot be opened or locked.
  Result<bool> held();

 private:
  std::string path_;
  Fd file_;
  bool held_ = false;
};

}  // namespace bellows
