// SPDX-License-Identifier: Apache-2.0
#include "elastic/simulate/packing.h"

#include <algorithm>
#include <numeric>

namespace bellows {
namespace {

class Packing {
 public:
  Packing(const ClusterShape& shape, const std::vector<const SimulatedJob*>& jobs,
          const std::vector<std::uint32_t>& sizes)
      : shape_(shape), jobs_(jobs), sizes_(sizes), order_(jobs.size()), keeps_(jobs.size()) {
    for (std::size_t j = 0; j < jobs.size(); ++j)
      keeps_[j] = sizes[j] > 0 && jobs[j]->gpus() == sizes[j];
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&sizes](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  }

  std::vector<NodeGpus> run() {
    while (!place() && clear_a_node()) {
    }
    return std::move(places_);
  }

 private:
  // Whether no job is spread over more nodes than it needs.
  bool place() {
    FreeGpus free(shape_);
    places_.assign(jobs_.size(), {});
    for (const std::size_t j : order_) {
      if (!keeps_[j]) continue;
      places_[j] = jobs_[j]->held();
      free.take(places_[j]);
    }
    bool is_tight = true;
    for (const std::size_t j : order_) {
      if (keeps_[j] || sizes_[j] == 0) continue;
      places_[j] = free.take_packed(sizes_[j]);
      const std::size_t needed = (sizes_[j] + shape_.gpus_per_node - 1) / shape_.gpus_per_node;
      is_tight &= placement_of(places_[j]).size() <= needed;
    }
    return is_tight;
  }

  // The jobs that keep their place on the node that has fewest of their GPUs, but some, and is not
  // full, keep it no longer. Whether there is such a node.
  bool clear_a_node() {
    std::vector<std::uint32_t> kept(shape_.nodes);
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      for (std::uint32_t n = 0; keeps_[j] && n < shape_.nodes; ++n) kept[n] += jobs_[j]->held()[n];
    const auto cost = [this](std::uint32_t gpus) {
      return gpus == 0 || gpus >= shape_.gpus_per_node ? UINT32_MAX : gpus;
    };
    const auto node = std::min_element(kept.begin(), kept.end(),
                                       [&](auto a, auto b) { return cost(a) < cost(b); });
    if (cost(*node) == UINT32_MAX) return false;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (keeps_[j] && jobs_[j]->held()[static_cast<std::size_t>(node - kept.begin())] > 0)
        keeps_[j] = false;
    return true;
  }

  const ClusterShape& shape_;
  const std::vector<const SimulatedJob*>& jobs_;
  const std::vector<std::uint32_t>& sizes_;
  std::vector<std::size_t> order_;  ///< the largest first
  std::vector<bool> keeps_;
  std::vector<NodeGpus> places_;
};

}  // namespace

std::uint32_t FreeGpus::count() const {
  return std::accumulate(free_.begin(), free_.end(), std::uint32_t{0});
}

void FreeGpus::take(const NodeGpus& gpus) {
  for (std::size_t n = 0; n < gpus.size(); ++n)
    free_[n] = static_cast<std::uint8_t>(free_[n] - gpus[n]);
}

NodeGpus FreeGpus::take_most_free(std::uint32_t gpus) {
  NodeGpus taken(free_.size());
  while (gpus > 0) {
    const auto most = std::max_element(free_.begin(), free_.end());
    const auto here = static_cast<std::uint8_t>(std::min<std::uint32_t>(*most, gpus));
    taken[static_cast<std::size_t>(most - free_.begin())] = here;
    *most = static_cast<std::uint8_t>(*most - here);
    gpus -= here;
  }
  return taken;
}

NodeGpus FreeGpus::take_packed(std::uint32_t gpus) {
  auto best = free_.end();
  for (auto node = free_.begin(); node != free_.end(); ++node)
    if (*node >= gpus && (best == free_.end() || *node < *best)) best = node;
  if (best == free_.end()) {
    const auto most = std::max_element(free_.begin(), free_.end());
    const std::uint8_t here = *most;
    NodeGpus first(free_.size());
    first[static_cast<std::size_t>(most - free_.begin())] = here;
    *most = 0;
    NodeGpus rest = take_packed(gpus - here);
    for (std::size_t n = 0; n < rest.size(); ++n)
      first[n] = static_cast<std::uint8_t>(first[n] + rest[n]);
    return first;
  }
  NodeGpus taken(free_.size());
  taken[static_cast<std::size_t>(best - free_.begin())] = static_cast<std::uint8_t>(gpus);
  *best = static_cast<std::uint8_t>(*best - gpus);
  return taken;
}

std::vector<NodeGpus> pack_jobs(const ClusterShape& shape,
                                const std::vector<const SimulatedJob*>& jobs,
                                const std::vector<std::uint32_t>& sizes) {
  return Packing(shape, jobs, sizes).run();
}

}  // namespace bellows
