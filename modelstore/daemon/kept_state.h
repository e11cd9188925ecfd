// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/keeper_link.h"
#include "modelstore/daemon/memory_tier.h"
#include "modelstore/daemon/model_registry.h"

namespace bellows {

/// What of the daemon survives it: tells the keeper of every change, and after a restart puts back
/// what the keeper has.
class KeptState final : private ModelWatcher, private JobWatcher, private GpuWatcher {
 public:
  /// `gpus`: null where models are not on GPUs.
  KeptState(KeeperLink& link, ModelRegistry& registry, MemoryTier& tier, ClientDesk& clients,
            GpuTier* gpus)
      : link_(link), registry_(registry), tier_(tier), clients_(clients), gpus_(gpus) {}

  /// Before anything is registered or served. From here on changes are told.
  Status restore();

 private:
  void model_changed(ModelId model) override;
  void job_served(const ServedJob& job, int listener) override;
  void job_ended(const std::string& job) override;
  void copy_changed(const GpuPlace& place, ModelId model, const GpuCopy* copy) override;
  void when_dropped(std::function<void()> done) override { link_.when_dropped(std::move(done)); }

  void restore_model(std::uint64_t key, KeptModel& kept, Fd memory);
  void restore_job(std::uint64_t key, KeptJob& kept, Fd listener);
  /// Those of jobs that are served still; the keeper lets go of the others.
  void restore_copies(std::vector<KeptItem>& items);
  /// False: nobody may have it, and it stays where it was.
  bool restore_copy(std::uint64_t key, const KeptCopy& kept, Fd& memory, Fd catalogue);
  void put_all();

  KeeperLink& link_;
  ModelRegistry& registry_;
  MemoryTier& tier_;
  ClientDesk& clients_;
  std::map<std::string, std::uint64_t> job_keys_;
  std::uint64_t next_job_key_ = 0;
  GpuTier* gpus_;
  std::map<std::pair<GpuPlace, ModelId>, std::uint64_t> copy_keys_;  ///< even; catalogues: behind
  std::uint64_t next_copy_key_ = 0;
};

}  // namespace bellows
