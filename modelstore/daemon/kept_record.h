// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "modelstore/daemon/client_desk.h"
#include "modelstore/daemon/model_memory.h"
#include "modelstore/daemon/model_registry.h"

namespace bellows {

/// What a restarted daemon has to know of a model: how it is registered and, when its memory comes
/// along, how that is laid out.
struct KeptModel {
  std::string tenant;
  ModelRegistry::Registered model;
  bool pinned = false;
  std::uint64_t bytes = 0;  ///< 0: it is not in memory
  std::uint64_t catalogue_at = 0;
  std::uint64_t catalogue_bytes = 0;
};

/// Of a job's listening socket.
struct KeptJob {
  std::string tenant;
  ServedJob job;
};

/// Of a model on a job's GPU: with the GPU's memory, or with its catalogue's.
struct KeptCopy {
  GpuPlace place;
  ModelId model = 0;
  bool is_catalogue = false;
  std::uint64_t bytes = 0;  ///< of what comes along
  std::uint64_t catalogue_at = 0;
  ModelDigest digest;
};

using KeptRecord = std::variant<KeptModel, KeptJob, KeptCopy>;

/// As text, of at most KeeperMessage::kMostRecord bytes. Nothing: it would be longer.
std::optional<std::string> text_of(const KeptRecord& record);
/// corrupt: text_of did not write it.
Result<KeptRecord> parse_kept(std::string_view text);

}  // namespace bellows
