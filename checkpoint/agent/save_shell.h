// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/agent/agent_parts.h"
#include "checkpoint/agent/save_host.h"
#include "checkpoint/protocol/protocol.h"

namespace bellows {

/// Does what the saves of one rank want done, with the parts of its agent. Made for a call, since
/// the rank may be gone by the next. Main thread only.
class SaveShell final : public SaveHost {
 public:
  SaveShell(AgentParts& parts, RankLink& link) : parts_(parts), link_(link) {}

  void make_buffer(std::uint64_t step, std::uint64_t bytes) override;
  void make_spare(std::size_t index, std::uint64_t bytes) override;
  void write_shard(Snapshot snapshot, std::shared_ptr<SharedMemory> buffer,
                   std::shared_ptr<const std::atomic<bool>> cancelled) override;
  void remove_shard(std::uint64_t step, const Error& error) override;

  void send_buffer(std::uint64_t step, std::size_t index, const SharedMemory& buffer,
                   bool is_new) override;
  void send_saved(std::uint64_t step) override;
  void send_failed(std::uint64_t step, const Error& error) override;

  void say_shard(std::uint64_t step, const ShardFile& file, std::uint64_t took_ms) override;
  void say_error(std::uint64_t step, const Error& error) override;

  bool connected() const override { return !link_.gone; }
  bool keeps_earlier() const override { return parts_.kept.has(link_.number()); }
  bool restore_holds_memory() const override;

 private:
  /// Runs `work` on a worker, and `take` with the saves of this rank if it is still there then.
  template <class Work, class Take>
  void post(Work work, Take take);
  std::string shard_path(std::uint64_t step) const;

  AgentParts& parts_;
  RankLink& link_;
};

}  // namespace bellows
