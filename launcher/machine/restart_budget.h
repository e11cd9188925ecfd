// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace bellows {

/// What has to change before another try can succeed.
enum class Blame {
  program,  ///< it may fail again and again
  cluster,  ///< a node or Slurm; another place may help
  storage   ///< a full or failing file system: only time helps
};

/// How often a job may fail without getting anywhere, and how long it waits before it tries again.
/// A newly committed step, or a step trained beyond all before, refills it: a long job survives
/// many faults while a program that crashes at once does not loop forever.
class RestartBudget {
 public:
  /// Tries that the cluster's and the file system's failures get; the pauses make the latter half
  /// an hour.
  static constexpr std::uint32_t kMostOfCluster = 10;
  static constexpr std::uint32_t kMostOfStorage = 40;

  explicit RestartBudget(std::uint32_t most) : most_{most, kMostOfCluster, kMostOfStorage} {}

  /// Counts a failure when `committed` and `trained` were the newest steps. True: start again.
  bool spend(Blame blame, std::optional<std::uint64_t> committed, std::uint64_t trained) {
    const bool further = (committed && committed > committed_) || trained > trained_;
    if (further && failures() > 0) refill();
    committed_ = std::max(committed_, committed);
    trained_ = std::max(trained_, trained);
    const auto i = static_cast<std::size_t>(blame);
    return ++failures_[i] <= most_[i];
  }
  void refill() { failures_ = {}; }
  /// Failures in a row without progress.
  std::uint32_t failures() const { return failures_[0] + failures_[1] + failures_[2]; }
  std::uint32_t failures_of(Blame blame) const {
    return failures_[static_cast<std::size_t>(blame)];
  }
  std::uint32_t most() const { return most_[0]; }
  /// Before the next try: none after the first failure, then up to 5 s, and up to a minute for a
  /// file system.
  std::chrono::seconds pause() const {
    const std::uint32_t storage = failures_of(Blame::storage);
    if (storage > 0) return std::chrono::seconds(std::min(1u << std::min(storage - 1, 6u), 60u));
    return std::chrono::seconds(failures() <= 1 ? 0 : std::min(failures(), 5u));
  }

 private:
  std::array<std::uint32_t, 3> most_;
  std::array<std::uint32_t, 3> failures_{};
  std::optional<std::uint64_t> committed_;
  std::uint64_t trained_ = 0;
};

}  // namespace bellows
