// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/keeper_seat.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

namespace bellows::pool {

std::uint64_t next_term(const std::string& dir) {
  // A file that is lost must not bring back terms of before.
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const auto seconds = static_cast<std::uint64_t>(now.count());
  const auto place = read_keeper(dir);
  return place ? std::max(place->term + 1, seconds) : seconds;
}

/// Nothing: there is no other, or one of an earlier term.
Status KeeperSeat::check() const {
  const auto now = read_keeper(dir_);
  if (!now && (now.error().kind == ErrorKind::not_found || now.error().kind == ErrorKind::corrupt))
    return {};
  if (!now) return now.error();
  // Keepers of one term are started one after the other.
  const bool is_later =
      now->term > place_.term || (now->term == place_.term && now->job != place_.job);
  if (!is_later) return {};
  return Error{ErrorKind::busy,
               fmt::format("another keeper has the pool: job {} at {}", now->job, now->address())};
}

Status KeeperSeat::take(const KeeperPlace& place) {
  place_ = place;
  const Status free = check();
  return free ? write_keeper(dir_, place_) : free;
}

Status KeeperSeat::look() {
  if (const auto now = read_keeper(dir_); now && *now == place_) return {};
  return take(place_);
}

}  // namespace bellows::pool
