// SPDX-License-Identifier: Apache-2.0
#include "spank/container/phases.h"

namespace bellows::container {

void Phases::begin(const char* name) {
  end();
  entries_.push_back({name, {}});
  began_ = Clock::now();
  running_ = true;
  if (watcher_) watcher_(name);
  if (observer_) observer_(name);
}

void Phases::end() {
  if (running_) entries_.back().took = Clock::now() - began_;
  running_ = false;
}

}  // namespace bellows::container
