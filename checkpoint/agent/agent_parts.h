// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/agent/jobs.h"
#include "checkpoint/agent/rank_links.h"
#include "checkpoint/agent/session.h"
#include "checkpoint/agent/store_desk.h"
#include "checkpoint/agent/voice.h"
#include "checkpoint/format/shard_copy.h"
#include "checkpoint/system/file_ops.h"
#include "checkpoint/system/memory_bin.h"
#include "checkpoint/system/worker.h"

namespace bellows {

/// What an agent consists of, for those of its classes that need several of the others.
struct AgentParts {
  AgentParts(std::string node, Fd listener, FileOps& ops, std::unique_ptr<Completions> completions,
             Voice::Emit emit);

  /// The newest step that a rank of this attempt has published, here or gone.
  std::optional<std::uint64_t> newest_step() const;
  /// The rank leaves: what its buffers hold may still be restored.
  void keep_copies(const RankLink& link);
  /// What this node's memory holds of a step, of ranks that are here and of those that have left.
  ShardCopies copies_of(std::uint64_t step) const;

  Voice voice;
  FileOps& ops;
  Jobs jobs;
  /// All memory for ranks' arrays ends there.
  std::shared_ptr<MemoryBin> bin = std::make_shared<MemoryBin>();
  std::unique_ptr<Session> session;  ///< none before the first hello
  RankLinks links;
  KeptCopies kept;
  // Last: their threads use what is above, and are joined first.
  StoreDesk store;
  Workers shards;  ///< several threads: writing, restoring
};

}  // namespace bellows
