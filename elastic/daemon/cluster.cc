// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/text.h"

namespace bellows {
namespace {

/// "a100" of "gres:gpu:a100:4" or "gres/gpu:a100:4"; "" without a type.
std::string asked_type(const SlurmJob& job) {
  const std::string& tres =
      job.asked.tres_per_job.empty() ? job.asked.tres_per_node : job.asked.tres_per_job;
  const auto gpu = tres.find("gpu:");
  if (gpu == std::string::npos) return "";
  const auto parts = split(std::string_view(tres).substr(gpu), ':');
  return parts.size() == 3 ? std::string(parts[1]) : "";
}

/// Nothing: it holds none, and asks for GPUs of any type.
std::optional<std::string> held_or_asked_type(const SlurmJob& job, const NodeTypes& types) {
  if (!job.nodes.empty())
    if (const auto type = types.find(job.nodes[0].node); type != types.end()) return type->second;
  std::string asked = asked_type(job);
  return asked.empty() ? std::nullopt : std::optional(std::move(asked));
}

/// The longest that a road back into the queue puts a start off, and what nodes take to complete.
constexpr std::time_t kBackWithin = 30;

bool may_start(const SlurmJob& job, std::time_t now) {
  return job.state == SlurmState::pending && !job.completing && job.priority > 0 &&
         job.times.begin <= now;
}

/// Nothing but room is missing, so far as Slurm says.
bool wants_only_room(const SlurmJob& job) {
  return job.reason == "Resources" || job.reason == "Priority" || job.reason == "None" ||
         job.reason.empty();
}

/// Slurm would start it now if there were room.
bool waits_for_room(const SlurmJob& job, std::time_t now) {
  return may_start(job, now) && wants_only_room(job);
}

bool starts_soon(const SlurmJob& job, std::time_t now) {
  return job.state == SlurmState::pending && job.priority > 0 && job.restarts > 0 &&
         (job.completing || (job.times.begin > now && job.times.begin <= now + kBackWithin)) &&
         (job.reason == "BeginTime" || wants_only_room(job));
}

/// It asks for more than is left since nodes are gone, and may be happy with less. Slurm says more
/// than a word then, such as which nodes.
bool waits_for_nodes(const SlurmJob& job, std::time_t now) {
  return may_start(job, now) && job.asked.required_nodes.empty() &&
         (job.reason.starts_with("ReqNodeNotAvail") ||
          job.reason.starts_with("Nodes required for job are DOWN"));
}

std::time_t waits_since(const SlurmJob& job) { return std::max(job.times.submit, job.times.begin); }

/// Empty: it has no contract.
std::string tenant_of(const SlurmJob& job) {
  const std::string_view line = Contract::line_in(job.admin_comment);
  if (line.empty()) return "";
  const auto contract = Contract::parse(line);
  return contract ? contract->tenant : "";
}

bool holds_nodes(const SlurmJob& job) {
  return job.state == SlurmState::running || job.state == SlurmState::suspended || job.completing;
}

/// One may have been started without the GPUs that it asked for.
std::uint32_t gpus_of(const std::vector<const SlurmJob*>& members) {
  std::uint32_t gpus = 0;
  for (const SlurmJob* job : members) gpus = std::max({gpus, job->gpus(), job->requested_gpus()});
  return gpus;
}

/// Those that hold something come first: Slurm knows where they are.
std::vector<const SlurmJob*> members_of(const ClusterState& cluster, const ServiceClaim& claim) {
  std::vector<const SlurmJob*> members;
  for (const SlurmJob& job : cluster.jobs)
    if (job.uid == claim.uid && (holds_nodes(job) || job.state == SlurmState::pending) &&
        pool_of_member(job) == claim.pool.name)
      members.push_back(&job);
  std::stable_partition(members.begin(), members.end(),
                        [](const SlurmJob* job) { return holds_nodes(*job); });
  return members;
}

class PoolBuilder {
 public:
  PoolBuilder(const ClusterState& cluster, std::optional<std::uint32_t> make_room,
              const std::vector<ServiceClaim>& services)
      : cluster_(cluster), make_room_(make_room), claims_(services) {
    for (const SlurmNode& node : cluster.nodes) {
      types_[node.name] = node.gpu_type;
      if (!node.available || node.gpus == 0) continue;
      for (const std::string& partition : node.partitions)
        gpus_[{partition, node.gpu_type}] += node.gpus;
    }
  }

  std::vector<Pool> build() {
    for (const SlurmJob& job : cluster_.jobs) add_elastic(job);
    for (const ServiceClaim& claim : claims_) add_service(claim);
    std::set<std::string> used;
    for (auto& [key, pool] : pools_)
      for (const SlurmNode& node : cluster_.nodes) add_node(pool, node, used);
    for (const SlurmJob& job : cluster_.jobs)
      if (holds_nodes(job)) {
        add_held(job);
        add_taken(job);
      }
    for (const SlurmJob* job : others_that_wait()) add_waiting(*job);
    std::vector<Pool> pools;
    for (auto& [key, pool] : pools_) {
      for (PoolService& service : pool.services) note_held(pool, service);
      pools.push_back(std::move(pool));
    }
    return pools;
  }

 private:
  /// The longest first.
  std::vector<const SlurmJob*> others_that_wait() const {
    std::vector<const SlurmJob*> others;
    for (const SlurmJob& job : cluster_.jobs)
      if (!elastic_.contains(job.id) && waits_for_room(job, cluster_.now)) others.push_back(&job);
    std::stable_sort(others.begin(), others.end(), [](const SlurmJob* a, const SlurmJob* b) {
      return waits_since(*a) < waits_since(*b);
    });
    return others;
  }

  using Key = std::pair<std::string, std::string>;  ///< partition, GPU type

  std::string largest_type(const std::string& partition) const {
    std::string type;
    std::uint32_t most = 0;
    for (const auto& [key, gpus] : gpus_)
      if (key.first == partition && gpus > most) {
        most = gpus;
        type = key.second;
      }
    return type;
  }

  Key key_in(const std::string& partition, const SlurmJob& job) const {
    const auto type = held_or_asked_type(job, types_);
    return {partition, type ? *type : largest_type(partition)};
  }

  void add_elastic(const SlurmJob& job) {
    const bool runs = job.state == SlurmState::running && !job.completing;
    const bool waits = waits_for_room(job, cluster_.now) || waits_for_nodes(job, cluster_.now);
    const bool soon = starts_soon(job, cluster_.now);
    if (!runs && !waits && !soon) return;
    // Slurm 22.05 has started a job without its GPUs right after a node had gone.
    if (runs && job.gpus() == 0) return;
    auto contract = elastic_contract(job);
    if (!contract) return;
    const Key key = key_in(job.partition, job);
    Pool& pool = pools_[key];
    pool.partition = key.first;
    pool.gpu_type = key.second;
    pool.jobs.push_back({job, *std::move(contract), soon});
    elastic_.emplace(job.id, key);
  }

  /// Members in another partition, or of another tenant, than its first are anybody's jobs.
  void add_service(const ServiceClaim& claim) {
    const auto members = members_of(cluster_, claim);
    if (gpus_of(members) == 0) return;
    const auto key_of = [this](const SlurmJob& job) {
      return key_in(std::string(split(job.partition, ',').front()), job);
    };
    const Key key = key_of(*members.front());
    const std::string tenant = tenant_of(*members.front());
    for (const SlurmJob* job : members)
      // Where a user has two pools of one name, the members are the first one's.
      if (key_of(*job) == key && tenant_of(*job) == tenant && elastic_.emplace(job->id, key).second)
        members_[claim.keeper].push_back(job);
    if (!members_.contains(claim.keeper)) return;
    Pool& pool = pools_[key];
    pool.partition = key.first;
    pool.gpu_type = key.second;
    pool.services.push_back({.claim = claim, .tenant = tenant, .gpus_each = gpus_of(members)});
  }

  /// Once it is known which nodes the pool has.
  void note_held(const Pool& pool, PoolService& service) const {
    for (const SlurmJob* job : members_.at(service.claim.keeper)) {
      const bool leaves = job->completing || service.claim.leaving.contains(job->id);
      (leaves ? service.leaving : service.staying) += pool.gpus_here(*job);
    }
  }

  static void add_node(Pool& pool, const SlurmNode& node, std::set<std::string>& used) {
    const auto& in = node.partitions;
    if (!node.available || node.gpus == 0 || node.gpu_type != pool.gpu_type) return;
    if (std::find(in.begin(), in.end(), pool.partition) == in.end()) return;
    if (!used.insert(node.name).second) return;
    pool.nodes.emplace(node.name, node.gpus);
    pool.gpus += node.gpus;
  }

  void add_held(const SlurmJob& job) {
    for (const NodeShare& share : job.nodes)
      for (auto& [key, pool] : pools_)
        if (const auto node = pool.nodes.find(share.node); node != pool.nodes.end())
          node->second -= std::min(node->second, share.gpus);
  }

  /// Of a pool all jobs count that are not its own, also elastic ones of another partition.
  void add_taken(const SlurmJob& job) {
    const auto own = elastic_.find(job.id);
    for (auto& [key, pool] : pools_) {
      if (own != elastic_.end() && own->second == key) continue;
      pool.taken += pool.gpus_here(job);
      if (const std::string tenant = tenant_of(job); !tenant.empty())
        pool.elsewhere[tenant] += job.gpus();
    }
  }

  /// A job may name several partitions, and waits in each of them.
  void add_waiting(const SlurmJob& job) {
    const std::uint32_t gpus = job.requested_gpus();
    const bool is_due =
        make_room_ && waits_since(job) + static_cast<std::time_t>(*make_room_) <= cluster_.now;
    for (const std::string_view partition : split(job.partition, ',')) {
      const auto pool = pools_.find(key_in(std::string(partition), job));
      if (pool == pools_.end()) continue;
      pool->second.wanted += gpus;
      if (is_due) pool->second.due.push_back(gpus);
    }
  }

  const ClusterState& cluster_;
  std::optional<std::uint32_t> make_room_;
  NodeTypes types_;
  std::map<Key, std::uint32_t> gpus_;
  std::map<Key, Pool> pools_;
  const std::vector<ServiceClaim>& claims_;
  std::map<std::uint32_t, Key> elastic_;  ///< the pools of elastic jobs, and of members
  std::map<std::uint32_t, std::vector<const SlurmJob*>> members_;  ///< of services, by keeper
};

}  // namespace

std::uint32_t Pool::gpus_here(const SlurmJob& job) const {
  std::uint32_t held = 0;
  for (const NodeShare& share : job.nodes)
    if (nodes.contains(share.node)) held += share.gpus;
  return held;
}

Result<ClusterState> read_cluster(Slurm& slurm, SlurmPlaces& places) {
  auto nodes = places.nodes();
  if (!nodes) return nodes.error();
  auto jobs = slurm.jobs();
  if (!jobs) return jobs.error();
  ClusterState cluster{*std::move(jobs), *std::move(nodes), 0};
  for (const SlurmJob& job : cluster.jobs) cluster.now = std::max(cluster.now, job.times.now);
  return cluster;
}

NodeTypes gpu_types(const std::vector<SlurmNode>& nodes) {
  NodeTypes types;
  for (const SlurmNode& node : nodes)
    if (node.gpus > 0) types[node.name] = node.gpu_type;
  return types;
}

std::string gpu_type_of(const SlurmJob& job, const NodeTypes& types) {
  if (const auto type = held_or_asked_type(job, types)) return *type;
  if (types.empty()) return "";
  const std::string& first = types.begin()->second;
  const bool all = std::all_of(types.begin(), types.end(),
                               [&](const auto& entry) { return entry.second == first; });
  return all ? first : "";
}

std::optional<Contract> elastic_contract(const SlurmJob& job) {
  if (!job.kind.batch || !job.kind.may_requeue || job.kind.cron || job.kind.het)
    return std::nullopt;
  // What is changed of the record that stands for several tasks changes for all of them.
  if (job.state == SlurmState::pending && !job.array.task && !job.array.waiting.empty())
    return std::nullopt;
  if (!job.reservation.empty() && !job.reservation.starts_with(kOwnReservations))
    return std::nullopt;
  const std::string_view line = Contract::line_in(job.admin_comment);
  if (line.empty()) return std::nullopt;
  auto contract = Contract::parse(line);
  if (!contract || contract->extra_value(Contract::kControllerKey).empty()) return std::nullopt;
  if (!contract->extra_value(Contract::kPoolKey).empty()) return std::nullopt;
  if (contract->gpus.is_none() || contract->gpus.min() == contract->gpus.max()) return std::nullopt;
  return *std::move(contract);
}

std::optional<std::uint32_t> gpus_of_member(const ClusterState& cluster,
                                            const ServiceClaim& claim) {
  const auto members = members_of(cluster, claim);
  if (members.empty()) return std::nullopt;
  return gpus_of(members);
}

std::vector<Pool> pools_of(const ClusterState& cluster, std::optional<std::uint32_t> make_room,
                           const std::vector<ServiceClaim>& services) {
  return PoolBuilder(cluster, make_room, services).build();
}

}  // namespace bellows
