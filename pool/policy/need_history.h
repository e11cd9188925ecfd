// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "pool/policy/signal_book.h"

namespace bellows::pool {

/// How many members a pool needed, as of late. A value.
class NeedHistory {
 public:
  using Time = SignalBook::Time;
  using Seconds = std::chrono::duration<double>;

  /// Members more (or fewer, below 0) each second, and how many the line has at the last time.
  struct Line {
    double slope = 0;
    double last = 0;
  };

  /// Forgets what is older than `kept`.
  void add(Time now, double members, Seconds kept);

  /// The least squares line through the last `window`, if the needs lie on one; nothing: they
  /// jump, they scatter as much as they change, or `window` isn't over yet.
  std::optional<Line> line(Seconds window) const;

  /// The largest of the last `window`, after each has moved by `slope` until now; 0: there is none.
  double largest(Seconds window, double slope = 0) const;

 private:
  struct Need {
    Time at;
    double members = 0;
  };

  double age(const Need& need) const { return Seconds(needs_.back().at - need.at).count(); }

  std::deque<Need> needs_;  ///< oldest first
};

}  // namespace bellows::pool
