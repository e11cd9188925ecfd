// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/result.h"
#include "elastic/daemon/service_book.h"
#include "slurm/interface.h"
#include "slurm/places.h"

namespace bellows {

/// How the names of bellowsd's reservations begin; job_submit keeps users out of these.
constexpr const char* kOwnReservations = "bellows-";

/// All that slurmctld said at one time. A value.
struct ClusterState {
  std::vector<SlurmJob> jobs;
  std::vector<SlurmNode> nodes;
  std::time_t now = 0;  ///< by slurmctld's clock
};

Result<ClusterState> read_cluster(Slurm& slurm, SlurmPlaces& places);

/// The GPU type of nodes, by their names.
using NodeTypes = std::map<std::string, std::string>;
NodeTypes gpu_types(const std::vector<SlurmNode>& nodes);
/// The type of GPUs that a job holds, or will hold as far as can be said; else empty.
std::string gpu_type_of(const SlurmJob& job, const NodeTypes& types);

/// The contract of a job whose size bellowsd may change; nothing of another. A job with a
/// reservation of its own is left alone, and a member of an elastic pool is not resized.
std::optional<Contract> elastic_contract(const SlurmJob& job);

/// A job that bellowsd may resize, with its contract. A value.
struct PoolJob {
  SlurmJob job;
  Contract contract;
  /// Another has put it back into the queue, and it is about to start by itself: it will need the
  /// GPUs it asks for.
  bool starts_by_itself = false;
};

/// An elastic pool whose members hold GPUs of one pool of equal GPUs, or wait for them. A value.
struct PoolService {
  ServiceClaim claim;
  std::string tenant;           ///< of its members
  std::uint32_t gpus_each = 0;  ///< of one member; at least 1
  std::uint32_t staying = 0;    ///< GPUs here that members hold which are to stay
  std::uint32_t leaving = 0;    ///< and that those hold which are to go
};

/// Equal GPUs that elastic jobs of one partition share with the others there. A value.
struct Pool {
  std::string partition;
  std::string gpu_type;
  /// Those that jobs can start on, with their GPUs that no job holds.
  std::map<std::string, std::uint32_t> nodes;
  std::uint32_t gpus = 0;   ///< of these nodes
  std::uint32_t taken = 0;  ///< of these, by jobs that are not in this pool
  /// GPUs anywhere that tenants hold by jobs that are not in this pool.
  std::map<std::string, std::uint32_t> elsewhere;
  std::uint32_t wanted = 0;  ///< by jobs that bellowsd does not resize, and that wait
  /// What each of these wants that has waited long enough, the longest first.
  std::vector<std::uint32_t> due;
  std::vector<PoolJob> jobs;  ///< elastic ones that run or wait to start
  /// Their members are none of these jobs, and what they hold is not in `taken`.
  std::vector<PoolService> services{};

  /// GPUs that a job holds on these nodes; those on a drained node are nobody else's to have.
  std::uint32_t gpus_here(const SlurmJob& job) const;
};

/// The GPUs of one member of a service; nothing while Slurm knows of none.
std::optional<std::uint32_t> gpus_of_member(const ClusterState& cluster, const ServiceClaim& claim);

/// The pools in which there are elastic jobs, or members of `services`. A node that several
/// partitions have is in the first pool that can use it. A job without a GPU type that waits is in
/// its partition's largest pool. `make_room`: seconds after which elastic jobs make room for others
/// that wait; none: never.
std::vector<Pool> pools_of(const ClusterState& cluster, std::optional<std::uint32_t> make_room,
                           const std::vector<ServiceClaim>& services = {});

}  // namespace bellows
