// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>

namespace bellows::pool {

/// How long members took from their submission until they were ready. A value.
class MemberStarts {
 public:
  using Seconds = std::chrono::duration<double>;
  static constexpr std::size_t kKept = 1024;  ///< more than start at once: the last are the slowest

  void add(Seconds took);
  /// Of the last kKept; nothing: there was none yet.
  std::optional<Seconds> median() const { return part(0.5); }
  std::optional<Seconds> p95() const { return part(0.95); }

 private:
  /// By nearest rank.
  std::optional<Seconds> part(double part) const;

  std::deque<Seconds> took_;
};

}  // namespace bellows::pool
