// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/reach.h"

namespace bellows {
namespace {

constexpr auto kAskEvery = std::chrono::seconds(1);
constexpr const char* kAnswers = "answers";

std::string verdict(const Status& status) {
  const bool answered = status.ok() || status.error().kind == ErrorKind::not_found;
  return answered ? kAnswers : status.error().text;
}

}  // namespace

void SlurmReach::add_poll(std::vector<pollfd>& fds) const {
  if (question_.asking()) fds.push_back({question_.fd(), POLLIN, 0});
}

bool SlurmReach::answers(const Look& look, Clock::time_point now) {
  if (auto said = question_.take()) {
    if (*said == kAnswers) {
      trouble_.clear();
      return true;
    }
    if (said->empty()) *said = "the query to slurmctld failed";
    told_ = *said == trouble_ && told_;
    trouble_ = *said;
  } else if (!question_.asking() && now >= next_) {
    next_ = now + kAskEvery;
    question_.ask([&look] { return verdict(look()); });
  }
  return false;
}

std::optional<std::string> SlurmReach::trouble() {
  if (told_) return std::nullopt;
  told_ = true;
  return trouble_;
}

}  // namespace bellows
