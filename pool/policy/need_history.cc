// SPDX-License-Identifier: Apache-2.0
#include "pool/policy/need_history.h"

#include <algorithm>
#include <cmath>

namespace bellows::pool {
namespace {

/// The change within the window in standard deviations from the line. A single step, wherever in
/// the window it is, has 6 at most, and what scatters around a constant fewer.
constexpr double kClear = 8;

}  // namespace

void NeedHistory::add(Time now, double members, Seconds kept) {
  needs_.push_back({now, members});
  while (age(needs_.front()) > kept.count()) needs_.pop_front();
}

std::optional<NeedHistory::Line> NeedHistory::line(Seconds window) const {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0, span = 0;
  for (auto need = needs_.rbegin(); need != needs_.rend(); ++need) {
    const double at = -age(*need);
    if (-at > window.count()) break;
    span = -at;
    ++count;
    x += at;
    y += need->members;
    xx += at * at;
    xy += at * need->members;
    yy += need->members * need->members;
  }
  // Four fit a line too easily.
  if (count < 8 || span < 0.9 * window.count()) return std::nullopt;
  const double across = xx - x * x / count;
  const double along = xy - x * y / count;
  if (across <= 0) return std::nullopt;
  const Line line{.slope = along / across, .last = (y - along / across * x) / count};
  const double off = std::max(0.0, yy - y * y / count - line.slope * along) / count;
  if (std::abs(line.slope) * span < kClear * std::sqrt(off)) return std::nullopt;
  return line;
}

double NeedHistory::largest(Seconds window, double slope) const {
  double largest = 0;
  for (auto need = needs_.rbegin(); need != needs_.rend(); ++need) {
    if (age(*need) > window.count()) break;
    largest = std::max(largest, need->members + slope * age(*need));
  }
  return largest;
}

}  // namespace bellows::pool
