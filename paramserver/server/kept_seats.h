// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "common/fd.h"
#include "common/keeper/keeper_wire.h"
#include "paramserver/server/seats.h"
#include "paramserver/server/server_memory.h"
#include "paramserver/wire/ps_wire.h"

namespace bellows::ps {

/// What a server that ended has left.
struct Inheritance {
  MemoryFiles files;
  Fd tensors;  ///< their counts
  RuleTerms terms;
  std::uint64_t tensor_count = 0;

  struct KeptSeat {
    Identity who;
    Fd slot;
    Fd bell;
    Fd process;
  };
  std::vector<KeptSeat> seats;
};

/// Gives the descriptors to the process that keeps them for the next server. Answers come at once:
/// it does nothing else.
class SeatKeeper {
 public:
  /// `socket`: to the keeper; -1: there is none, and a server that ends takes all with it.
  explicit SeatKeeper(Fd socket) : socket_(std::move(socket)) {}

  /// Nothing: there was no server, or it had no memory yet.
  Result<std::optional<Inheritance>> get();
  Status put_memory(const MemoryFiles& files, const Fd& tensors, std::uint64_t tensor_count,
                    const RuleTerms& terms);
  /// When this returns, it is kept.
  Status put_seat(const Seat& seat);
  Status drop_seat(std::uint32_t learner);

 private:
  Status send(KeeperWord word, std::uint64_t key, std::string_view record, int fd);
  Status sync();

  Fd socket_;
};

}  // namespace bellows::ps
