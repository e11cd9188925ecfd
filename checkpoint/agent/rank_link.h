// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/agent/placed_arrays.h"
#include "checkpoint/agent/rank_saves.h"
#include "checkpoint/read/block_offers.h"
#include "checkpoint/system/shared_memory.h"
#include "checkpoint/wire/wire.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// One rank's connection and what the agent knows of the rank. Main thread only.
struct RankLink {
  Fd socket;
  std::uint64_t id = 0;    ///< unique over the agent's life, for completions that come late
  std::int64_t rank = -1;  ///< -1: has not said hello
  bool parked_hello = false;
  wire::Hello hello;
  std::string belongs;  ///< to which directory or attempt, as its hello says
  bool gone = false;    ///< the socket has closed; kept while a write is in progress
  bool said_bye = false;
  bool exits = false;           ///< by itself and well, as its last message says
  std::optional<bool> leaving;  ///< its bye, while that is not answered: whether it has finished
  std::unique_ptr<ControlPage> page;

  NamedArrays arrays;
  RankSaves saves;
  std::uint64_t restores = 0;  ///< how many it has asked for
  bool restoring = false;      ///< asked for restore, not answered
  bool wants_whole = false;    ///< and reads nothing itself
  /// A restore that the rank itself does the rest of, and what will have come from where.
  struct Taking {
    std::uint64_t step, from_memory, from_store;
  };
  std::optional<Taking> taking;

  std::uint32_t number() const { return static_cast<std::uint32_t>(rank); }
  /// Sends without waiting; false when the rank doesn't take it, and is to be dropped.
  bool send(wire::Head head, std::string_view text = {}, int fd = -1);
  bool answer(wire::Op op, std::uint64_t step = 0, std::uint64_t value = 0, int fd = -1);
  bool answer_restored(std::uint64_t step, const SharedMemory& memory, const BlockOffers& offers);
  bool fail(std::int32_t code, std::string_view text, bool try_again = false);
  /// So that a library of that version can read it.
  bool fail_version(std::uint32_t version);
  bool fail_save(std::uint64_t step, const Error& error);
  /// Which of the buffers to use; its descriptor goes along when it is a new one.
  bool answer_buffer(std::uint64_t step, std::size_t index, const SharedMemory& buffer,
                     bool is_new);
};

/// The bellows_result for an error that a rank is told.
std::int32_t code_of(ErrorKind kind);

}  // namespace bellows
