// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "checkpoint/format/shard_copy.h"
#include "checkpoint/format/shard_file.h"
#include "checkpoint/system/shared_memory.h"
#include "common/result.h"

namespace bellows {

/// A shard that was written, and how it still lies in memory.
struct WrittenShard {
  ShardFile file;
  std::shared_ptr<const ShardCopy> copy;
};

/// What RankSaves has done by others for one rank. Nothing is answered before the call has
/// returned.
class SaveHost {
 public:
  virtual ~SaveHost() = default;

  // Work on other threads, each with its answer:
  /// take_buffer. The rank's memory of earlier steps goes first.
  virtual void make_buffer(std::uint64_t step, std::uint64_t bytes) = 0;
  /// take_spare. Nobody waits for it, so its pages are filled, too.
  virtual void make_spare(std::size_t index, std::uint64_t bytes) = 0;
  /// take_shard. `snapshot` has its data in `buffer`.
  virtual void write_shard(Snapshot snapshot, std::shared_ptr<SharedMemory> buffer,
                           std::shared_ptr<const std::atomic<bool>> cancelled) = 0;
  /// take_removed, with the same error.
  virtual void remove_shard(std::uint64_t step, const Error& error) = 0;

  // To the rank:
  virtual void send_buffer(std::uint64_t step, std::size_t index, const SharedMemory& buffer,
                           bool is_new) = 0;
  virtual void send_saved(std::uint64_t step) = 0;
  virtual void send_failed(std::uint64_t step, const Error& error) = 0;

  // To whoever decides about steps:
  virtual void say_shard(std::uint64_t step, const ShardFile& file, std::uint64_t took_ms) = 0;
  virtual void say_error(std::uint64_t step, const Error& error) = 0;

  /// Whether the rank is still connected.
  virtual bool connected() const = 0;
  /// Whether memory is still kept of what this rank saved in an earlier attempt.
  virtual bool keeps_earlier() const = 0;
  /// Whether what this rank restored is kept for ranks that are slower.
  virtual bool restore_holds_memory() const = 0;
};

}  // namespace bellows
