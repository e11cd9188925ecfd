// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/places.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace bellows {
namespace {

struct JobAt {
  std::size_t tenant;
  std::size_t job;
  std::uint32_t gpus;
};

/// The room on nodes while jobs are placed on them.
class Room {
 public:
  explicit Room(const PoolNodes& nodes) : sizes_(nodes.gpus), free_(nodes.free) {
    std::sort(sizes_.begin(), sizes_.end(), std::greater<>());
  }

  void give_back(const GpuPlace& place) {
    for (const PlacedGpus& share : place) free_[share.node] += share.gpus;
  }

  /// On as few nodes as there may be at most, or nothing.
  std::optional<GpuPlace> take(std::uint32_t gpus, bool anywhere) {
    const std::size_t most = anywhere ? free_.size() : nodes_for(gpus);
    GpuPlace place;
    std::uint32_t left = gpus;
    while (left > 0 && place.size() < most) {
      const std::uint32_t node = best_for(left);
      const std::uint32_t here = std::min(left, free_[node]);
      if (here == 0) break;
      free_[node] -= here;
      left -= here;
      place.push_back({node, here});
    }
    if (left == 0) return place;
    give_back(place);
    return std::nullopt;
  }

 private:
  std::size_t nodes_for(std::uint32_t gpus) const {
    std::uint64_t sum = 0;
    for (std::size_t n = 0; n < sizes_.size(); ++n) {
      sum += sizes_[n];
      if (sum >= gpus) return n + 1;
    }
    return sizes_.size();
  }

  /// The node with the least room of those that have enough, else the one with most.
  std::uint32_t best_for(std::uint32_t gpus) const {
    std::uint32_t best = 0;
    for (std::uint32_t n = 1; n < free_.size(); ++n) {
      const bool enough = free_[n] >= gpus;
      const bool better =
          free_[best] >= gpus ? enough && free_[n] < free_[best] : free_[n] > free_[best];
      if (better) best = n;
    }
    return best;
  }

  std::vector<std::uint32_t> sizes_;  ///< of nodes, the largest first
  std::vector<std::uint32_t> free_;
};

using Places = std::vector<std::vector<KnownPlace>>;

std::uint32_t gpus_of(const GpuPlace& place) {
  std::uint32_t sum = 0;
  for (const PlacedGpus& share : place) sum += share.gpus;
  return sum;
}

Status check(const std::vector<TenantShare>& tenants, const Places& at, const PoolNodes& nodes) {
  const auto wrong = [](std::size_t tenant, std::size_t job, const char* what) {
    return Error{ErrorKind::invalid, fmt::format("job {} of tenant {}: {}", job, tenant, what)};
  };
  if (nodes.gpus.size() != nodes.free.size() || at.size() != tenants.size())
    return Error{ErrorKind::invalid, "nodes or tenants of which not all is said"};
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    const auto& jobs = tenants[t].curve.jobs();
    if (at[t].size() != jobs.size()) return wrong(t, jobs.size(), "there is no such place");
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const KnownPlace& place = at[t][j];
      if (!place.anywhere && gpus_of(place.held) != place.floor + jobs[j].now)
        return wrong(t, j, "its place has not as many GPUs as it holds");
      for (const PlacedGpus& share : place.held)
        if (share.node >= nodes.free.size()) return wrong(t, j, "its node is not in the pool");
    }
  }
  return {};
}

/// Gives back what the jobs hold that change; these, in the order in which they are placed.
std::vector<JobAt> take_up(const Places& at, Room& room, PlacedPlan& plan) {
  std::vector<JobAt> changing;
  plan.places.clear();
  for (std::size_t t = 0; t < at.size(); ++t) {
    auto& places = plan.places.emplace_back();
    for (std::size_t j = 0; j < at[t].size(); ++j) {
      const KnownPlace& now = at[t][j];
      const std::uint32_t gpus = now.floor + plan.tenants[t].jobs[j].gpus;
      places.push_back(now.held);
      if (gpus == gpus_of(now.held)) continue;
      room.give_back(now.held);
      places.back().clear();
      changing.push_back({t, j, gpus});
    }
  }
  std::stable_sort(changing.begin(), changing.end(),
                   [](const JobAt& a, const JobAt& b) { return a.gpus > b.gpus; });
  return changing;
}

/// Places for what `plan.tenants` says; those that find none.
std::vector<JobAt> place(const Places& at, const PoolNodes& nodes, PlacedPlan& plan) {
  Room room(nodes);
  std::vector<JobAt> misfits;
  for (const JobAt& job : take_up(at, room, plan)) {
    const KnownPlace& now = at[job.tenant][job.job];
    // There is nothing below the floor to strike it for.
    const bool anywhere = now.anywhere || job.gpus == now.floor;
    if (auto found = room.take(job.gpus, anywhere))
      plan.places[job.tenant][job.job] = *std::move(found);
    else if (!anywhere)
      misfits.push_back(job);
  }
  return misfits;
}

Status strike(const std::vector<JobAt>& misfits, const Places& at,
              std::vector<TenantShare>& tenants) {
  for (const JobAt& misfit : misfits) {
    TenantCurve& curve = tenants[misfit.tenant].curve;
    auto jobs = curve.jobs();
    const std::uint32_t struck = misfit.gpus - at[misfit.tenant][misfit.job].floor;
    std::erase_if(jobs[misfit.job].sizes, [&](const JobSize& size) { return size.gpus == struck; });
    auto without = TenantCurve::of(std::move(jobs), curve.most());
    if (!without) return without.error();
    curve = *std::move(without);
  }
  return {};
}

}  // namespace

Result<PlacedPlan> plan_places(std::vector<TenantShare> tenants,
                               const std::vector<std::vector<KnownPlace>>& at,
                               const PoolNodes& nodes, std::uint32_t gpus, Surplus surplus) {
  if (auto status = check(tenants, at, nodes); !status) return status.error();
  PlacedPlan plan;
  // It ends: each time at least one size is struck, and a job that keeps its size has its place.
  for (;;) {
    auto divided = plan_pool(tenants, gpus, surplus);
    if (!divided) return divided.error();
    plan.tenants = *std::move(divided);
    ++plan.solves;
    const auto misfits = place(at, nodes, plan);
    plan.misfits = misfits.size();
    if (misfits.empty() || plan.solves == kMostSolves) return plan;
    if (auto status = strike(misfits, at, tenants); !status) return status.error();
  }
}

}  // namespace bellows
