// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "common/own_process.h"
#include "launcher/base/exit_status.h"
#include "launcher/model/commands.h"
#include "launcher/model/node_store.h"
#include "modelstore/control/job_models.h"

namespace bellows {
namespace {

constexpr std::chrono::seconds kLimit{3};

/// As Slurm calls it.
std::string node_name() {
  if (const char* name = std::getenv("SLURMD_NODENAME"); name && *name) return name;
  return own_host_name();
}

}  // namespace

int model_progress(const ModelOptions& options) {
  const std::string socket = job_socket(options.run);
  if (socket.empty())
    return model_failed("progress",
                        Error{ErrorKind::unavailable, "this is no job with a model's socket"});
  auto store = JobModels::connect(socket, StoreClock::now() + kLimit);
  if (!store) return model_failed("progress", store.error());
  const auto models = store->list();
  if (!models) return model_failed("progress", models.error());
  bool loads = false;
  std::uint64_t read = 0, bytes = 0;
  for (const SeenModel& model : *models) {
    const auto& names = options.names;
    if (std::find(names.begin(), names.end(), model.name) == names.end()) continue;
    if (model.place == modelwire::Place::loading) loads = true;
    read += model.place == modelwire::Place::memory ? model.bytes : model.read_bytes;
    bytes += model.bytes;
  }
  if (loads) fmt::print("{} {} {}\n", node_name(), read, bytes);
  return kOk;
}

}  // namespace bellows
