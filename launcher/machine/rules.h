// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/protocol/attempt_name.h"
#include "common/access.h"
#include "common/contract.h"
#include "launcher/machine/own_checkpoint.h"

namespace bellows {

/// What a run was told at its start, which never changes. A value.
struct RunRules {
  RunName run;
  std::string checkpoint_dir;
  std::string trusted_base;  ///< how checkpoint_dir begins, see StorePlace
  Access access = Access::owner;
  std::uint32_t keep = 3;
  std::uint64_t keep_every = 0;  ///< 0: none
  std::uint32_t max_restarts = 3;
  std::chrono::seconds start_limit{600};  ///< until all ranks have joined; 0: any time
  std::chrono::seconds hang_floor{300};   ///< without progress before a hang is called; 0: never
  bool stays = false;                     ///< when one of its nodes is drained
  bool rendezvous = false;                ///< ranks need a place where rank 0 can listen
  OwnCheckpoint own{};
  std::optional<Contract> contract{};
};

}  // namespace bellows
