// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/agent/placed_arrays.h"
#include "checkpoint/agent/save_host.h"
#include "checkpoint/format/shard_copy.h"
#include "checkpoint/format/shard_file.h"
#include "checkpoint/system/shared_memory.h"
#include "checkpoint/wire/wire.h"
#include "common/result.h"

namespace bellows {

/// A save in progress on one rank, from save_begin to saved or failed.
struct SaveState {
  enum class Phase {
    waiting,  ///< for a buffer: all are in use
    copying,  ///< the rank has its buffer, or is about to
    queued,   ///< copied; an earlier save of this rank is still being written
    writing,
    written,
    failed
  };
  std::uint64_t step = 0;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  Placed placed;  ///< what the rank's shard is made of
  HeldNames held;
  Phase phase = Phase::waiting;
  std::size_t buffer = 0;           ///< from copying on
  std::optional<Error> called_off;  ///< the step failed elsewhere, and the rank is not told yet
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);

  /// The agent has all of it and needs the rank no more.
  bool unwritten() const { return phase == Phase::queued || phase == Phase::writing; }
};

/// The saves of one rank and the buffers that it copies into: decides what is made, written and
/// answered next. What it decides is done by the host that comes with each call, which also brings
/// what came of it. invalid: the rank has broken the protocol.
class RankSaves {
 public:
  /// The rank has joined.
  void join(std::uint32_t rank, std::uint32_t world);

  // The rank says:
  Status begin(std::uint64_t step, const NamedArrays& arrays, SaveHost& host);
  /// It has copied its arrays, or could not.
  Status take_ready(std::uint64_t step, bool copied, SaveHost& host);
  /// It would like a buffer for these arrays. Making one takes as long as several copies into it,
  /// so the first is made while the rank computes its first steps.
  Status prepare(const NamedArrays& arrays, SaveHost& host);
  /// What it said of the step cannot be obeyed.
  void refuse(std::uint64_t step, const Error& error, SaveHost& host);

  // Messages from whoever decides about steps:
  void commit(std::uint64_t step, SaveHost& host);
  /// The step has failed on some rank.
  void fail(std::uint64_t step, const Error& error, SaveHost& host);
  /// Nobody will commit what is still being written.
  void cancel();

  // Answers from the host:
  void take_buffer(std::uint64_t step, const MadeMemory& memory, SaveHost& host);
  void take_spare(std::size_t index, const MadeMemory& memory, SaveHost& host);
  void take_shard(std::uint64_t step, const Result<WrittenShard>& written, SaveHost& host);
  void take_removed(std::uint64_t step, const Error& error, SaveHost& host);

  /// Whether none is in progress.
  bool empty() const { return saves_.empty(); }
  /// How many parts the agent has yet to write of what this rank gave.
  std::uint32_t unwritten() const;
  /// Of the shards that the buffers still hold: of stored steps, or of some about to be.
  template <class Do>
  void each_copy(Do act) const {
    for (const Buffer& buffer : buffers_) {
      if (buffer.copy) act(buffer.copy);
    }
  }

 private:
  /// What the agent and the rank share.
  struct Buffer {
    std::shared_ptr<SharedMemory> memory;
    bool handed = false;  ///< whether the rank has its descriptor
    std::shared_ptr<const ShardCopy> copy;

    void put(std::shared_ptr<SharedMemory> made);
    bool holds(std::uint64_t bytes) const { return memory && memory->size() >= bytes; }
  };

  SaveState* find(std::uint64_t step);
  std::vector<ArrayPart> stored_parts(const NamedArrays& arrays) const;
  std::optional<std::size_t> free_buffer(std::uint64_t bytes) const;
  int cost_of(std::size_t buffer, std::uint64_t bytes) const;
  void give_buffer(SaveHost& host);
  void hand_out(const SaveState& save, SaveHost& host);
  void make_first(SaveHost& host);
  void make_second(SaveHost& host);
  void make_spare(std::size_t index, std::uint64_t bytes, SaveHost& host);
  Status take_copied(std::uint64_t step, bool copied, SaveHost& host);
  void write_next(SaveHost& host);
  void call_off(SaveState& save, const Error& error, SaveHost& host);
  void say_error(SaveState& save, const Error& error, SaveHost& host);
  void end_failed(std::uint64_t step, const Error& error, SaveHost& host);
  void forget(std::uint64_t step);

  std::uint32_t rank_ = 0;
  std::uint32_t world_ = 0;
  std::deque<SaveState> saves_;  ///< as they began; only the last may be waiting or copying
  std::array<Buffer, wire::kBuffers> buffers_;
  bool making_spare_ = false;      ///< a buffer is being made ahead of its save
  std::uint64_t first_bytes_ = 0;  ///< of the first buffer, as last asked for
  /// Steps that failed before this rank came to save them, and why.
  std::map<std::uint64_t, Error> owed_;
};

}  // namespace bellows
