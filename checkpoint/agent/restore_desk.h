// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/agent/agent_parts.h"
#include "checkpoint/agent/farewell.h"
#include "checkpoint/protocol/protocol.h"
#include "checkpoint/read/block_offers.h"
#include "checkpoint/system/shared_memory.h"
#include "common/result.h"

namespace bellows {

/// What a rank restored: its arrays, and where they were read.
struct RestoredArrays {
  std::shared_ptr<SharedMemory> memory;
  BlockOffers offers;         ///< what the rank is to read itself
  std::uint64_t from_memory;  ///< bytes
  std::uint64_t from_store;
};

/// Gives ranks what they restore, as soon as it is known which step that is. Main thread only.
class RestoreDesk {
 public:
  RestoreDesk(AgentParts& parts, Farewell& farewell) : parts_(parts), farewell_(farewell) {}

  /// The launcher says which step.
  void offer(const command::Restore& restore);
  /// A rank asks; `whole`: it reads nothing itself.
  void ask(RankLink& link, bool whole);
  /// The rank has what was left to it, or could not read all.
  void take_taken(RankLink& link, bool all);

 private:
  void begin_if_known(RankLink& link);
  void begin(RankLink& link);
  void read(RankLink& link, std::uint64_t step);
  void take(std::uint64_t link_id, std::uint64_t step, const Result<RestoredArrays>& arrays);
  void take_arrays(RankLink& link, std::uint64_t step, const RestoredArrays& arrays);
  void own_directory(std::uint64_t link_id);
  void give_up(RankLink& link);
  void say_restored(RankLink& link);

  AgentParts& parts_;
  Farewell& farewell_;
};

}  // namespace bellows
