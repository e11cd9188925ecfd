// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/hang_detector.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "launcher/ranks/rank_names.h"

namespace bellows {

using std::chrono::milliseconds;

namespace {

constexpr std::uint32_t kMostDoublings = 10;
/// Agents report every second.
constexpr auto kSilent = std::chrono::seconds(10);

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void HangDetector::begin(Clock::time_point now) {
  ranks_.clear();
  finished_.clear();
  heard_.clear();
  changes_ = 0;
  death_ = false;
  excuse(now);
}

void HangDetector::excuse(Clock::time_point now) {
  since_ = now;
  excused_ = true;
}

void HangDetector::advanced(Clock::time_point now) {
  const Clock::duration gap = now - since_;
  if (!excused_) {
    while (!gaps_.empty() && gaps_.back().length <= gap) gaps_.pop_back();
    gaps_.push_back({now, gap});
  }
  while (!gaps_.empty() && now - gaps_.front().end > kRemembered) gaps_.pop_front();
  since_ = now;
  excused_ = false;
  recovered_ = true;
  ++changes_;
}

void HangDetector::note(const std::string& node, const event::Progress& progress,
                        Clock::time_point now) {
  std::map<std::uint32_t, Rank> here;
  bool stepped = false;
  for (std::size_t i = 0; i < progress.ranks.size(); ++i) {
    Rank rank{node, i < progress.steps.size() ? progress.steps[i] : std::nullopt};
    const auto before = ranks_.find(progress.ranks[i]);
    stepped =
        stepped || (rank.step && (before == ranks_.end() || before->second.step != rank.step));
    if (rank.step && called_at_ && *rank.step > *called_at_) {
      called_at_.reset();
      calls_ = 0;
    }
    here[progress.ranks[i]] = std::move(rank);
  }
  const auto left =
      std::erase_if(ranks_, [&](const auto& rank) { return rank.second.node == node; });
  const bool others = left != here.size();
  ranks_.merge(here);
  finished_[node] = progress.finished;
  heard_[node] = now;
  if (stepped) advanced(now);
  if (others || progress.busy) excuse(now);
}

milliseconds HangDetector::limit() const {
  milliseconds limit = death_ ? std::min<milliseconds>(floor_, kAfterDeath) : floor_;
  const bool finishing = std::any_of(finished_.begin(), finished_.end(),
                                     [](const auto& node) { return node.second > 0; });
  if (changes_ < 3 || finishing) limit *= kUnknown;
  if (!gaps_.empty())
    limit =
        std::max(limit, std::chrono::duration_cast<milliseconds>(gaps_.front().length) * kLongest);
  return limit * (1 << std::min(calls_, kMostDoublings));
}

std::string HangDetector::stuck_ranks() const {
  std::optional<std::uint64_t> newest;
  for (const auto& [number, rank] : ranks_) newest = std::max(newest, rank.step);
  if (!newest) return fmt::format("not one of {} ranks has reached its first step", ranks_.size());
  std::map<std::optional<std::uint64_t>, RankNames> by_step;
  for (const auto& [number, rank] : ranks_) by_step[rank.step].add(number, rank.node);
  if (by_step.size() == 1 && ranks_.size() > 1)
    return fmt::format("all {} ranks stay at step {}", ranks_.size(), *newest);
  const auto& [step, stuck] = *by_step.begin();
  if (by_step.size() == 1) return fmt::format("{} stays at step {}", stuck.to_string(), *newest);
  return fmt::format("{} {}, while others are at step {}", stuck.to_string(),
                     step ? fmt::format("stay{} at step {}", stuck.size() == 1 ? "s" : "", *step)
                          : "reached no step",
                     *newest);
}

std::string HangDetector::silent_nodes(Clock::time_point now) const {
  std::string text;
  for (const auto& [node, last] : heard_)
    if (now - last > kSilent)
      text += fmt::format("; no message from {} for {:.0f} s", node, seconds(now - last));
  return text;
}

std::optional<std::string> HangDetector::check(Clock::time_point now) {
  if (floor_.count() == 0 || ranks_.empty() || now - since_ < limit()) return std::nullopt;
  std::string what = fmt::format("no progress for {:.0f} s (the limit is {:.0f} s): {}",
                                 seconds(now - since_), seconds(limit()), stuck_ranks()) +
                     silent_nodes(now);
  std::optional<std::uint64_t> newest;
  for (const auto& [number, rank] : ranks_) newest = std::max(newest, rank.step);
  called_at_ = std::max(called_at_, newest);
  ++calls_;
  recovered_ = false;
  excuse(now);
  return what;
}

}  // namespace bellows
