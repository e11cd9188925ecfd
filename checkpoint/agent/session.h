// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/agent/gate.h"
#include "checkpoint/agent/restore_offer.h"
#include "checkpoint/protocol/protocol.h"
#include "checkpoint/store/store_writer.h"
#include "checkpoint/wire/wire.h"

namespace bellows {

/// One attempt, from its hello to the next.
struct Session {
  Session(const command::Hello& hello, const std::string& node,
          std::chrono::milliseconds gate_limit);

  command::Hello hello;
  std::string node;
  bool leader;
  std::set<std::uint32_t> ranks;      ///< this node's
  std::uint64_t memory_for_rank = 0;  ///< what the buffers of one rank may take
  std::shared_ptr<StoreWriter> writer;

  RestoreOffer offer;
  std::optional<ReservedPort> port;  ///< kept for rank 0
  Gate gate;
  std::uint64_t failures = 0;           ///< the number of the last failed step heard of
  std::optional<std::uint64_t> newest;  ///< of ranks that have left
  std::uint32_t stopped = 0;            ///< ranks that left without having finished
  std::uint32_t finished = 0;

  std::size_t ranks_here() const { return ranks.empty() ? hello.world : ranks.size(); }
  /// Whether a rank whose hello names this is of another attempt.
  bool is_foreign(const std::string& belongs) const;
  /// Why a rank may not join, or nothing. `connected`: one of its number is here already.
  std::optional<std::string> refusal(const wire::Hello& rank, const std::string& belongs,
                                     bool connected) const;
};

}  // namespace bellows
