// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/owner_watch.h"

namespace bellows {

void OwnerWatch::add_poll(std::vector<pollfd>& fds) const {
  if (question_.asking()) fds.push_back({question_.fd(), POLLIN, 0});
}

std::optional<std::string> OwnerWatch::owner(const Look& look, Clock::time_point now) {
  if (!question_.asking() && now >= next_) {
    question_.ask(look);
    next_ = now + kEvery;
  }
  return question_.take();
}

}  // namespace bellows
