// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "common/result.h"

namespace bellows {

/// A node as slurmctld describes it. A value.
struct SlurmNode {
  std::string name;
  std::vector<std::string> partitions;
  std::uint32_t gpus = 0;
  std::string gpu_type;    ///< empty: none is configured, or there are several
  bool available = false;  ///< jobs can start on it: up, not drained, not in maintenance
  bool lost = false;       ///< set down
  bool silent = false;  ///< does not answer, or has yet to answer a slurmctld that began just now
  std::time_t booted = 0;  ///< 0: not known
};

/// A reservation for whole nodes that starts at once. It keeps jobs of others from starting on the
/// nodes; jobs that name it may also start elsewhere and last beyond it, jobs that run on the nodes
/// are left alone, and jobs that name it when it ends are not held.
struct SlurmReservation {
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> users;
  std::time_t begin = 0;  ///< now, by slurmctld's clock
  std::time_t end = 0;
};

/// The nodes and reservations of slurmctld, as bellowsd needs them: PlacesClient through libslurm,
/// and a fake in unit tests. Used by one thread. Errors as those of Slurm.
class SlurmPlaces {
 public:
  SlurmPlaces() = default;
  SlurmPlaces(const SlurmPlaces&) = delete;
  SlurmPlaces& operator=(const SlurmPlaces&) = delete;
  virtual ~SlurmPlaces() = default;

  virtual Result<std::vector<SlurmNode>> nodes() = 0;
  virtual Result<std::vector<std::string>> reservations() = 0;
  virtual Status reserve(const SlurmReservation& reservation) = 0;
  /// Moves the end of a reservation.
  virtual Status extend(const std::string& name, std::time_t end) = 0;
  /// not_found: there is none of this name.
  virtual Status unreserve(const std::string& name) = 0;
};

}  // namespace bellows
