// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "modelstore/control/control_client.h"
#include "modelstore/control/gpu_view.h"

namespace bellows {

struct StoredModel {
  std::string tenant;
  std::string name;
  std::string source;         ///< a path, or a URL without what is secret in it
  std::string visible;        ///< other tenants that see it, with "," between; "*": all
  bool more_visible = false;  ///< than `visible` names
  std::string digest;         ///< 64 hexadecimal digits; "": not known yet
  modelwire::Place place = modelwire::Place::absent;
  std::uint64_t bytes = 0;       ///< that it takes; 0: not known yet
  std::uint64_t read_bytes = 0;  ///< while it is loaded
  std::uint64_t references = 0;
  std::uint64_t waiting = 0;
  std::uint64_t uses = 0;
  std::optional<std::chrono::milliseconds> idle;  ///< nothing: it was never used
  bool pinned = false;
  bool configured = false;       ///< else somebody added it
  std::optional<Error> trouble;  ///< why its last load failed
};

struct StoreTenant {
  std::string name;
  std::uint64_t budget = 0;  ///< bytes, and so are the next two
  std::uint64_t used = 0;
  std::uint64_t evicting = 0;  ///< of used
};

/// The tier on a disk.
struct StoreDisk {
  std::uint64_t budget = 0;  ///< bytes
  std::uint64_t used = 0;    ///< bytes
  std::uint64_t images = 0;
  bool answers = false;  ///< else the rest is of when it last did
};

/// Who has a model open, or waits for it.
struct ModelHolder {
  std::string job;  ///< or the path of a socket
  std::string tenant;
  uid_t uid = 0;
  std::uint64_t count = 0;
};

struct StoreView {
  StoreTenant all;  ///< without a name
  std::uint64_t jobs = 0;
  std::uint64_t programs = 0;
  std::optional<StoreDisk> disk;                            ///< nothing: there is none
  std::uint64_t loads = 0, disk_loads = 0, peer_loads = 0;  ///< since the daemon began
  std::vector<StoreTenant> tenants;
  std::vector<StoredModel> models;
};

/// Each reads a whole table; what changes meanwhile is there as it was before or after.
/// Errors: as ControlClient's.
Result<StoreView> read_store(ControlClient& daemon);
/// By jobs, addresses, and the tenants and names of models.
Result<std::vector<GpuForModels>> read_gpus(ControlClient& daemon);
/// Nothing: there is none.
Result<std::optional<StoreDisk>> read_disk(ControlClient& daemon);
Result<StoredModel> read_model(ControlClient& daemon, const std::string& tenant,
                               const std::string& model);
Result<std::vector<ModelHolder>> read_holders(ControlClient& daemon, const std::string& tenant,
                                              const std::string& model);

}  // namespace bellows
