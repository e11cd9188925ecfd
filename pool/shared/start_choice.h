// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bellows::pool {

/// What is known when a server of a pool's etcd is to be started. A value.
struct SeatFacts {
  bool born = false;         ///< the servers have been one before
  bool has_data = false;     ///< this one has what it stored
  bool refuses_it = false;   ///< it has ended again and again within seconds of its start
  bool others_data = false;  ///< another has what it stored
  bool quorum = false;       ///< the others answer, and so need this one for nothing
  bool restoring = false;    ///< all data was gone, and a majority has not begun with the copy yet
  bool snapshot = false;     ///< there is a copy of all fields
};

enum class SeatStart {
  found,    ///< with the others, for the first time
  go_on,    ///< with its data
  rejoin,   ///< with none: the others forget it, take it as a new one and send it all
  restore,  ///< from the copy, since all data is gone
  wait,     ///< nothing is right now: to start could lose what was acknowledged
};

/// Never invents an empty server in the place of one that may have voted: a majority of which one
/// has forgotten what it acknowledged is none.
SeatStart choose_start(const SeatFacts& facts);

}  // namespace bellows::pool
