// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "common/fd.h"

namespace bellows {

/// Asks something that may take long, as libslurm does without slurmctld, in a child process: its
/// caller has only one thread, which must also handle commits.
class SideQuestion {
 public:
  SideQuestion() = default;
  SideQuestion(const SideQuestion&) = delete;
  SideQuestion& operator=(const SideQuestion&) = delete;
  ~SideQuestion() { end(); }

  /// `find` runs in the child and returns the answer. One question at a time: others are dropped.
  void ask(const std::function<std::string()>& find);
  bool asking() const { return pid_ > 0; }
  /// Readable when there is an answer.
  int fd() const { return pipe_.get(); }
  /// The answer, once; none while it is under way. Empty when the child could not give one.
  std::optional<std::string> take();

 private:
  void end();
  pid_t pid_ = -1;
  Fd pipe_;
  std::string text_;
};

}  // namespace bellows
