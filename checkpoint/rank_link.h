// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/shard_file.h"
#include "checkpoint/shared_memory.h"
#include "checkpoint/wire.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// A message from a rank, checked as far as it can be without knowing the rank's state.
struct RankMessage {
  wire::Head head;
  wire::Hello hello;  ///< op hello
  std::string text;   ///< hello: the directory
  ArrayPart part;     ///< op array
};

/// invalid: not a message a rank may send.
Result<RankMessage> parse_rank_message(std::string_view bytes);

/// A save in progress on one rank.
struct SaveState {
  enum class Phase { copying, writing, written, failed };
  std::uint64_t step = 0;
  Phase phase = Phase::copying;
  ShardFile shard;                  ///< once written
  std::optional<Error> called_off;  ///< the step failed elsewhere while this rank was writing
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

/// One rank's connection and what the agent knows of the rank. Main thread only.
struct RankLink {
  Fd socket;
  std::uint64_t id = 0;    ///< unique over the agent's life, for completions that come late
  std::int64_t rank = -1;  ///< -1: has not said hello
  bool parked_hello = false;
  wire::Hello hello;
  std::string dir;
  bool gone = false;  ///< the socket has closed; kept while a write is in progress
  bool said_bye = false;
  std::unique_ptr<ControlPage> page;

  std::vector<ArrayPart> parts;
  std::uint64_t parts_expected = 0;
  std::shared_ptr<SharedMemory> buffer;
  std::optional<SaveState> save;
  /// A step that failed before this rank came to save it, and why.
  std::optional<std::pair<std::uint64_t, Error>> owed;
  bool restoring = false;  ///< asked for restore, not answered

  /// Sends without waiting; false when the rank doesn't take it, and is to be dropped.
  bool send(wire::Head head, std::string_view text = {}, int fd = -1);
  bool answer(wire::Op op, std::uint64_t step = 0, std::uint64_t value = 0, int fd = -1);
  bool fail(std::int32_t code, std::string_view text, bool try_again = false);
};

/// The bellows_result for an error that a rank is told.
std::int32_t code_of(ErrorKind kind);

}  // namespace bellows
