// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bellows {

/// A time as users write it: "90s", "10m", "1h30m" or "2d" before `now`; "14:05" or "14:05:30" of
/// the day of `now`; "2026-11-22", "2026-11-22T14:05", "2026-11-22 14:05:30.5", of this machine's
/// zone or, with a Z behind it, of UTC. Seconds since the epoch; nothing for any other text.
std::optional<double> parse_since(const std::string& text, double now);

/// "0.4 s", "12.3 s", "4:05 min", "2:10:00 h"
std::string duration_text(double seconds);

/// "2026-11-22 14:05", of this machine's zone, of seconds since the epoch.
std::string date_text(std::int64_t seconds);

}  // namespace bellows
