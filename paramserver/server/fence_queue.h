// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "common/fd.h"
#include "paramserver/protocol/learner_steps.h"

namespace bellows::ps {

/// Learners that have written nonsense, on their way from the shards' threads to that of the loop.
class FenceQueue {
 public:
  struct Entry {
    Identity who;
    std::string why;
  };

  Status open();
  /// An eventfd that is readable when there are some.
  const Fd& bell() const { return bell_; }
  void add(const Identity& who, const std::string& why);
  std::vector<Entry> take();

 private:
  Fd bell_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace bellows::ps
