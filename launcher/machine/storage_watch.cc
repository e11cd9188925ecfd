// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/storage_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace bellows {

void StorageWatch::begin(Clock::time_point now) {
  steps_.clear();
  busy_.clear();
  advanced_ = now;
  told_.reset();
}

void StorageWatch::note(const std::string& node, const event::Progress& progress,
                        Clock::time_point now) {
  for (std::size_t i = 0; i < progress.ranks.size() && i < progress.steps.size(); ++i) {
    const auto [rank, is_new] = steps_.try_emplace(progress.ranks[i], progress.steps[i]);
    if (!is_new && rank->second != progress.steps[i]) advanced_ = now;
    rank->second = progress.steps[i];
  }
  if (progress.busy && !progress.ranks.empty())
    busy_.try_emplace(node, now);
  else
    busy_.erase(node);
}

void StorageWatch::excuse(Clock::duration gap) {
  advanced_ += gap;
  for (auto& [node, since] : busy_) since += gap;
  if (told_) *told_ += gap;
}

std::optional<std::string> StorageWatch::check(Clock::time_point now, std::optional<double> usual) {
  const auto seconds = [now](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  if (told_ && advanced_ > *told_) {
    const double waited = std::chrono::duration<double>(advanced_ - *told_).count();
    told_.reset();
    return fmt::format("training continues after {:.0f} s of waiting for the file system", waited);
  }
  const double limit = usual ? std::max(kAtLeast, kLonger * *usual) : kUnknown;
  for (const auto& [node, since] : busy_) {
    const auto begin = std::max(since, advanced_);
    if (told_ || seconds(begin) < limit) continue;
    told_ = begin;
    return fmt::format(
        "training waits for the file system of the checkpoints: the agent on {} has been at work "
        "for {:.0f} s",
        node, seconds(begin));
  }
  return std::nullopt;
}

}  // namespace bellows
