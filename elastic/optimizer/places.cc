// SPDX-License-Identifier: Apache-2.0
#include "elastic/optimizer/places.h"

#include <fmt/core.h>

#include <algorithm>
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
  explicit Room(const PoolNodes& nodes) : per_node_(nodes.gpus_per_node), free_(nodes.free) {}

  void give_back(const GpuPlace& place) {
    for (const PlacedGpus& share : place) free_[share.node] += share.gpus;
  }

  std::optional<GpuPlace> take(std::uint32_t gpus) {
    GpuPlace place;
    for (std::uint32_t left = gpus; left > 0; left -= place.back().gpus) {
      const std::uint32_t here = std::min(left, per_node_);
      const auto node = tightest(here);
      if (!node) {
        give_back(place);
        return std::nullopt;
      }
      free_[*node] -= here;
      place.push_back({*node, here});
    }
    return place;
  }

 private:
  std::optional<std::uint32_t> tightest(std::uint32_t gpus) const {
    std::optional<std::uint32_t> best;
    for (std::uint32_t n = 0; n < free_.size(); ++n)
      if (free_[n] >= gpus && (!best || free_[n] < free_[*best])) best = n;
    return best;
  }

  std::uint32_t per_node_;
  std::vector<std::uint32_t> free_;
};

using Places = std::vector<std::vector<GpuPlace>>;

std::uint32_t gpus_of(const GpuPlace& place) {
  std::uint32_t sum = 0;
  for (const PlacedGpus& share : place) sum += share.gpus;
  return sum;
}

Status check(const std::vector<TenantShare>& tenants, const Places& held, const PoolNodes& nodes) {
  const auto wrong = [](std::size_t tenant, std::size_t job, const char* what) {
    return Error{ErrorKind::invalid, fmt::format("job {} of tenant {}: {}", job, tenant, what)};
  };
  if (nodes.gpus_per_node == 0 || held.size() != tenants.size())
    return Error{ErrorKind::invalid, "nodes without GPUs, or tenants of which no places are said"};
  for (std::size_t t = 0; t < tenants.size(); ++t) {
    const auto& jobs = tenants[t].curve.jobs();
    if (held[t].size() != jobs.size()) return wrong(t, jobs.size(), "there is no such place");
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (gpus_of(held[t][j]) != jobs[j].now)
        return wrong(t, j, "its place has not as many GPUs as it holds");
      for (const PlacedGpus& share : held[t][j])
        if (share.node >= nodes.free.size()) return wrong(t, j, "its node is not in the pool");
    }
  }
  return {};
}

/// Places for what `plan.tenants` says; those that find none.
std::vector<JobAt> place(const Places& held, const PoolNodes& nodes, PlacedPlan& plan) {
  Room room(nodes);
  std::vector<JobAt> changing;
  plan.places = held;
  for (std::size_t t = 0; t < held.size(); ++t)
    for (std::size_t j = 0; j < held[t].size(); ++j) {
      const std::uint32_t gpus = plan.tenants[t].jobs[j].gpus;
      if (gpus == gpus_of(held[t][j])) continue;
      room.give_back(held[t][j]);
      plan.places[t][j].clear();
      changing.push_back({t, j, gpus});
    }
  std::stable_sort(changing.begin(), changing.end(),
                   [](const JobAt& a, const JobAt& b) { return a.gpus > b.gpus; });
  std::vector<JobAt> misfits;
  for (const JobAt& job : changing) {
    auto found = room.take(job.gpus);
    if (found)
      plan.places[job.tenant][job.job] = *std::move(found);
    else
      misfits.push_back(job);
  }
  return misfits;
}

Status strike(const std::vector<JobAt>& misfits, std::vector<TenantShare>& tenants) {
  for (const JobAt& misfit : misfits) {
    TenantCurve& curve = tenants[misfit.tenant].curve;
    auto jobs = curve.jobs();
    std::erase_if(jobs[misfit.job].sizes,
                  [&](const JobSize& size) { return size.gpus == misfit.gpus; });
    auto without = TenantCurve::of(std::move(jobs), curve.most());
    if (!without) return without.error();
    curve = *std::move(without);
  }
  return {};
}

}  // namespace

Result<PlacedPlan> plan_places(std::vector<TenantShare> tenants,
                               const std::vector<std::vector<GpuPlace>>& held,
                               const PoolNodes& nodes, Surplus surplus) {
  if (auto status = check(tenants, held, nodes); !status) return status.error();
  std::uint32_t gpus = 0;
  for (const std::uint32_t free : nodes.free) gpus += free;
  for (const auto& of_tenant : held)
    for (const GpuPlace& place : of_tenant) gpus += gpus_of(place);
  PlacedPlan plan;
  // It ends: each time at least one size is struck, and a job that keeps its size has its place.
  for (;;) {
    auto divided = plan_pool(tenants, gpus, surplus);
    if (!divided) return divided.error();
    plan.tenants = *std::move(divided);
    ++plan.solves;
    const auto misfits = place(held, nodes, plan);
    if (misfits.empty()) return plan;
    if (auto status = strike(misfits, tenants); !status) return status.error();
  }
}

}  // namespace bellows
