// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/child.h"
#include "common/result.h"

namespace bellows {

/// A node as scontrol describes it.
struct NodeReport {
  std::string name;
  std::set<std::string> states;  ///< the state and its flags, as in MIXED+DRAIN
  std::set<std::string> partitions;
  std::uint32_t gpus = 0;
  std::uint32_t gpus_used = 0;

  /// It shall start nothing new.
  bool draining() const;
  /// Slurm may place jobs there now.
  bool usable() const;
  std::uint32_t gpus_free() const { return gpus > gpus_used ? gpus - gpus_used : 0; }
};

/// What `scontrol --oneliner --detail show node` printed. Lines that are no nodes are left out.
std::vector<NodeReport> parse_node_reports(std::string_view text);

/// Asks for nodes without ever waiting for the answer: libslurm would block for as long as
/// slurmctld is away, and commits with it. The lack of an answer is not news.
class NodeWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `nodes` empty: all of them. A question that still runs is given up.
  void ask(const std::vector<std::string>& nodes, Clock::time_point now);
  bool asking() const { return child_.has_value(); }
  /// The answer, once.
  std::optional<std::vector<NodeReport>> poll(Clock::time_point now);

 private:
  std::optional<Child> child_;
  std::string text_;
  Clock::time_point until_;
};

/// The size at which a job leaves draining nodes: as it is when other nodes have room for what it
/// holds there, else without that, as far as `allowed` says so; nothing: as it is.
struct Departure {
  std::uint32_t held = 0;        ///< GPUs of the whole job
  std::uint32_t on_leaving = 0;  ///< of these, on the nodes that it leaves
  std::uint32_t free = 0;        ///< GPUs that Slurm could give it elsewhere now
};
template <typename Allowed>
std::optional<std::uint32_t> size_after(const Departure& departure, Allowed allowed) {
  if (departure.free >= departure.on_leaving) return std::nullopt;
  for (std::uint32_t size = departure.held - departure.on_leaving; size > 0; --size)
    if (allowed(size)) return size;
  return std::nullopt;
}

}  // namespace bellows
