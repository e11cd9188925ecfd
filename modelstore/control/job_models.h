// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fd.h"
#include "common/result.h"
#include "modelstore/control/gpu_view.h"
#include "modelstore/control/packet_question.h"
#include "modelstore/wire/model_wire.h"

namespace bellows {

/// A model as a job's socket tells of it.
struct SeenModel {
  std::string name;
  std::string digest;  ///< 64 hexadecimal digits; "": not known yet
  modelwire::Place place = modelwire::Place::absent;
  std::uint64_t bytes = 0;       ///< that it takes; 0: not known yet
  std::uint64_t read_bytes = 0;  ///< while it is loaded
  bool own = false;              ///< the tenant's; else another shows it one
  std::optional<Error> trouble;  ///< why its last load failed
};

/// A connection to a job's socket, for the job's user. All that is asked through it has one
/// deadline together. A resource.
///
/// Errors: unavailable when the daemon is not there, hangs, or does not serve this user.
class JobModels {
 public:
  static Result<JobModels> connect(
      const std::string& path, StoreClock::time_point deadline,
      std::chrono::milliseconds restart = std::chrono::milliseconds(300));

  /// All that the job sees, by their names.
  Result<std::vector<SeenModel>> list();
  /// not_found: the job sees no model of this name, whether there is one or not.
  Result<SeenModel> show(const std::string& name);
  /// The job's GPUs, by their addresses, and the models there that it sees by their names.
  Result<std::vector<GpuForModels>> gpus();

 private:
  JobModels(Fd socket, StoreClock::time_point deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}
  /// Nothing: there is no other.
  template <typename Line>
  Result<std::optional<Line>> ask(modelwire::Op op, const std::string& name,
                                  std::uint64_t gpu = modelwire::kNoGpu);

  Fd socket_;
  StoreClock::time_point deadline_;
};

}  // namespace bellows
