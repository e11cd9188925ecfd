// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/places.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
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
  explicit Room(std::vector<std::uint32_t> free) : free_(std::move(free)) {}

  void give_back(const GpuPlace& place) {
    for (const PlacedGpus& share : place) free_[share.node] += share.gpus;
  }

  /// On so many nodes at most, or nothing.
  std::optional<GpuPlace> take(std::uint32_t gpus, std::size_t most) {
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

  std::vector<std::uint32_t> free_;
};

using Places = std::vector<std::vector<KnownPlace>>;

/// How many nodes a size needs, by the room that there is for all of these jobs together: what
/// others hold cannot be had.
class NodesNeeded {
 public:
  NodesNeeded(const Places& at, const PoolNodes& nodes) : sums_(nodes.free) {
    for (const auto& of_tenant : at)
      for (const KnownPlace& place : of_tenant)
        for (const PlacedGpus& share : place.held) sums_[share.node] += share.gpus;
    std::sort(sums_.begin(), sums_.end(), std::greater<>());
    std::partial_sum(sums_.begin(), sums_.end(), sums_.begin());
  }

  std::size_t of(std::uint32_t gpus) const {
    const auto enough = std::lower_bound(sums_.begin(), sums_.end(), gpus);
    return std::min(sums_.size(), static_cast<std::size_t>(enough - sums_.begin()) + 1);
  }

 private:
  std::vector<std::uint32_t> sums_;  ///< of the nodes with most room
};

std::uint32_t gpus_of(const GpuPlace& place) {
  std::uint32_t sum = 0;
  for (const PlacedGpus& share : place) sum += share.gpus;
  return sum;
}

Status check(const std::vector<TenantShare>& tenants, const Places& at, const PoolNodes& nodes) {
  const auto wrong = [](std::size_t tenant, std::size_t job, const char* what) {
    return Error{ErrorKind::invalid, fmt::format("job {} of tenant {}: {}", job, tenant, what)};
  };
  if (at.size() != tenants.size())
    return Error{ErrorKind::invalid, "tenants of which no places are said"};
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

/// Whether it takes its GPUs wherever they are: there is nothing to strike them for.
bool is_anywhere(const KnownPlace& place, const ElasticJob& job, std::uint32_t gpus) {
  const bool is_least = !job.sizes.empty() && gpus == job.sizes.front().gpus;
  return place.anywhere || (place.floor > 0 && gpus == place.floor) ||
         (place.floor == 0 && job.now == 0 && is_least);
}

/// Places for what `plan.tenants` says; those that find none.
std::vector<JobAt> place(const std::vector<TenantShare>& tenants, const Places& at,
                         const PoolNodes& nodes, const NodesNeeded& needed, PlacedPlan& plan) {
  Room room(nodes.free);
  std::vector<JobAt> misfits;
  for (const JobAt& job : take_up(at, room, plan)) {
    const KnownPlace& now = at[job.tenant][job.job];
    const bool anywhere = is_anywhere(now, tenants[job.tenant].curve.jobs()[job.job], job.gpus);
    if (auto found = room.take(job.gpus, anywhere ? nodes.free.size() : needed.of(job.gpus)))
      plan.places[job.tenant][job.job] = *std::move(found);
    else if (!anywhere)
      misfits.push_back(job);
  }
  return misfits;
}

Status strike(const std::vector<JobAt>& misfits, const Places& at,
              std::vector<TenantShare>& tenants) {
  std::map<std::size_t, std::vector<ElasticJob>> changed;
  for (const JobAt& misfit : misfits) {
    const auto jobs = changed.try_emplace(misfit.tenant, tenants[misfit.tenant].curve.jobs()).first;
    const std::uint32_t struck = misfit.gpus - at[misfit.tenant][misfit.job].floor;
    std::erase_if(jobs->second[misfit.job].sizes,
                  [&](const JobSize& size) { return size.gpus == struck; });
  }
  // A curve takes a while: one for each tenant.
  for (auto& [tenant, jobs] : changed) {
    TenantCurve& curve = tenants[tenant].curve;
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
  const NodesNeeded needed(at, nodes);
  // It ends: each time at least one size is struck, and a job that keeps its size has its place.
  for (;;) {
    auto divided = plan_pool(tenants, gpus, surplus);
    if (!divided) return divided.error();
    plan.tenants = *std::move(divided);
    ++plan.solves;
    const auto misfits = place(tenants, at, nodes, needed, plan);
    plan.misfits = misfits.size();
    if (misfits.empty() || plan.solves == kMostSolves) return plan;
    if (auto status = strike(misfits, at, tenants); !status) return status.error();
  }
}

}  // namespace bellows
