// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "common/text.h"
#include "jobsubmit/policy/policy_reader.h"

namespace bellows {
namespace {

constexpr std::uint32_t kMostNodes = 65536;
constexpr std::uint32_t kMostSizes = 256;
constexpr std::uint32_t kMostCpus = 4096;
constexpr std::uint64_t kMostMib = std::uint64_t{1} << 30;
constexpr std::uint32_t kMostLead = 65535;  // Slurm keeps it in 16 bits
constexpr std::uint32_t kMostSiteFactor = 1000000000;
constexpr std::uint32_t kMostQuota = 1000000;

/// Reads the sizes: min, max, and how to get from one to the next.
class SizeReader {
 public:
  SizeReader(ValueReader& in, const Inherited& keys) : in_(in), keys_(keys) {}

  GpusRange read(std::uint32_t& whole_nodes_of);

 private:
  std::uint32_t number(const char* key, std::uint32_t fallback) {
    const YamlNode* node = keys_.find(key);
    return node ? in_.number(*node, key, 1, GpusRange::kMost) : fallback;
  }
  std::vector<std::uint32_t> by_name(const YamlNode& node, std::uint32_t& whole_nodes_of);
  std::vector<std::uint32_t> listed(const YamlNode& node);

  ValueReader& in_;
  const Inherited& keys_;
  std::uint32_t min_ = 1;
  std::uint32_t max_ = GpusRange::kMost;
};

std::vector<std::uint32_t> SizeReader::by_name(const YamlNode& node,
                                               std::uint32_t& whole_nodes_of) {
  std::vector<std::uint32_t> sizes;
  if (in_.choice(node, "sizes, if not a list,", {"powers_of_two", "whole_nodes"}) == 0) {
    for (std::uint32_t size = 1; size <= GpusRange::kMost; size *= 2) sizes.push_back(size);
    return sizes;
  }
  whole_nodes_of = number("gpus_per_node", 0);
  if (whole_nodes_of == 0) {
    in_.fail(node, "sizes: whole_nodes needs gpus_per_node");
    return sizes;
  }
  return GpusRange::between(whole_nodes_of, GpusRange::kMost, whole_nodes_of).sizes();
}

std::vector<std::uint32_t> SizeReader::listed(const YamlNode& node) {
  std::vector<std::uint32_t> sizes;
  for (const YamlNode& item : node.items) {
    sizes.push_back(in_.number(item, "a size", 1, GpusRange::kMost));
    if (sizes.size() > 1 && sizes.back() <= sizes[sizes.size() - 2])
      in_.fail(item, "the sizes in a list must ascend");
  }
  if (sizes.size() > kMostSizes)
    in_.fail(node, fmt::format("more than {} sizes; give min, max and step", kMostSizes));
  return sizes;
}

GpusRange SizeReader::read(std::uint32_t& whole_nodes_of) {
  whole_nodes_of = 0;
  min_ = number("min", min_);
  max_ = number("max", max_);
  if (max_ < min_) {
    in_.fail(*keys_.find_either("max", "min"),
             fmt::format("max {} is smaller than min {}", max_, min_));
    return GpusRange::between(1, 1);
  }
  if (keys_.own("step") && keys_.own("sizes"))
    in_.fail(*keys_.own("sizes"), "step and sizes exclude each other; give one of them");
  const YamlNode* node = keys_.find_either("sizes", "step");
  if (!node || node == keys_.find("step")) return GpusRange::between(min_, max_, number("step", 1));
  std::vector<std::uint32_t> sizes =
      node->kind == YamlNode::Kind::sequence ? listed(*node) : by_name(*node, whole_nodes_of);
  std::erase_if(sizes, [&](std::uint32_t size) { return size < min_ || size > max_; });
  if (!sizes.empty()) return GpusRange::of(std::move(sizes));
  in_.fail(*node, fmt::format("no size is from min {} to max {}", min_, max_));
  return GpusRange::between(1, 1);
}

/// A start of this mapping must be one of its sizes; an inherited one gives way to them.
std::uint32_t read_start(ValueReader& in, const Inherited& keys, const GpusRange& sizes) {
  const YamlNode* node = keys.find("start");
  if (!node) return sizes.min();
  const std::uint32_t start = in.number(*node, "start", 1, GpusRange::kMost);
  if (keys.own("start") && !sizes.contains(start))
    in.fail(*node, fmt::format("start {} is not one of the sizes {}", start, sizes.to_string()));
  return sizes.clamp(start);
}

/// The same for the range; an inherited one of which nothing is left counts as none.
std::optional<GpusRange> read_range(ValueReader& in, const Inherited& keys,
                                    const GpusRange& sizes) {
  const YamlNode* node = keys.find("range");
  if (!node || node->is_null()) return std::nullopt;
  auto parsed = GpusRange::parse(in.short_text(*node, "range"));
  if (!parsed) {
    in.fail(*node, parsed.error().text);
    return std::nullopt;
  }
  std::vector<std::uint32_t> common;
  for (const std::uint32_t size : parsed->sizes())
    if (sizes.contains(size))
      common.push_back(size);
    else if (keys.own("range"))
      in.fail(*node, fmt::format("range {} includes {}, which is not one of the sizes {}",
                                 parsed->to_string(), size, sizes.to_string()));
  if (common.empty()) return std::nullopt;
  return GpusRange::of(std::move(common));
}

Share read_share(ValueReader& in, const YamlNode& node, std::string_view what) {
  Share share;
  if (!in.mapping(node, what, {"cpus", "memory", "snapshot"})) return share;
  if (const YamlNode* cpus = node.find("cpus")) share.cpus = in.number(*cpus, "cpus", 1, kMostCpus);
  if (const YamlNode* memory = node.find("memory"))
    share.memory_mib = in.memory(*memory, "memory", kMostMib);
  if (const YamlNode* snapshot = node.find("snapshot"))
    share.snapshot_mib = in.memory(*snapshot, "snapshot", kMostMib);
  return share;
}

/// One share for all types, or a mapping from types to shares.
std::map<std::string, Share> read_shares(ValueReader& in, const YamlNode& node) {
  std::map<std::string, Share> shares;
  if (!in.mapping(node, "per_gpu", {})) return shares;
  const bool typed = std::any_of(
      node.entries.begin(), node.entries.end(),
      [](const YamlEntry& entry) { return entry.value.kind == YamlNode::Kind::mapping; });
  if (!typed) {
    shares[""] = read_share(in, node, "per_gpu");
    return shares;
  }
  for (const auto& [key, value] : node.entries) {
    const std::string type = in.name(key, "a GPU type");
    shares[type == "default" ? "" : type] =
        read_share(in, value, fmt::format("per_gpu for {}", type));
  }
  return shares;
}

void read_time(ValueReader& in, const YamlNode& node, Sizing& sizing) {
  if (!in.mapping(node, "time", {"default", "max"})) return;
  if (const YamlNode* usual = node.find("default"))
    sizing.time_default_min = in.minutes(*usual, "default");
  if (const YamlNode* most = node.find("max")) {
    sizing.time_max_min = in.minutes(*most, "max");
    if (sizing.time_default_min > sizing.time_max_min)
      in.fail(*most, fmt::format("max {} is shorter than default {}", most->scalar,
                                 node.find("default")->scalar));
  }
}

/// What jobs get that name none, and the patterns that it and theirs must fit.
void read_pair(ValueReader& in, const Inherited& keys, const char* one, const char* many,
               std::string& value, std::vector<std::string>& patterns) {
  const YamlNode* value_node = keys.find(one);
  const YamlNode* patterns_node = keys.find(many);
  if (patterns_node) patterns = in.some_texts(*patterns_node, many, "a pattern");
  if (!value_node || value_node->is_null()) return;
  value = in.name(*value_node, one);
  const auto fits = [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), value.c_str(), 0) == 0;
  };
  if (patterns_node && std::none_of(patterns.begin(), patterns.end(), fits))
    in.fail(*keys.find_either(one, many),
            fmt::format("{} {} does not match any of {}", one, value, many));
}

}  // namespace

Inherited::Inherited(std::initializer_list<const YamlNode*> outermost_first) {
  for (const YamlNode* level : outermost_first)
    if (level) levels_.push_back(level);
}

const YamlNode* Inherited::own(std::string_view key) const { return innermost().find(key); }

const YamlNode* Inherited::find(std::string_view key) const { return find_either(key, key); }

const YamlNode* Inherited::find_either(std::string_view one, std::string_view other) const {
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    if (const YamlNode* node = (*level)->find(one)) return node;
    if (const YamlNode* node = (*level)->find(other)) return node;
  }
  return nullptr;
}

GpuLimits read_gpus(ValueReader& in, const Inherited& keys, const GpuLimits& outer) {
  GpuLimits limits = outer;
  if (!in.mapping(keys.innermost(), "gpus",
                  {"min", "max", "step", "sizes", "start", "range", "types", "max_nodes",
                   "gpus_per_node", "shrink_below_start", "elastic"}))
    return limits;
  const auto own = [&](const char* key) { return keys.own(key) != nullptr; };
  if (own("min") || own("max") || own("step") || own("sizes") || own("gpus_per_node"))
    limits.sizes = SizeReader(in, keys).read(limits.gpus_per_node);
  if (const YamlNode* node = keys.own("gpus_per_node"))
    (void)in.number(*node, "gpus_per_node", 1, GpusRange::kMost);
  limits.start = read_start(in, keys, limits.sizes);
  limits.range = read_range(in, keys, limits.sizes);
  if (const YamlNode* node = keys.own("types")) {
    limits.types = in.some_texts(*node, "types", "a GPU type");
    for (const YamlNode& item : node->items) (void)in.name(item, "a GPU type");
  }
  if (const YamlNode* node = keys.own("max_nodes"))
    limits.max_nodes = in.number(*node, "max_nodes", 1, kMostNodes);
  if (const YamlNode* node = keys.own("shrink_below_start"))
    limits.shrink_below_start = in.flag(*node, "shrink_below_start");
  if (const YamlNode* node = keys.own("elastic"))
    limits.elastic =
        std::array{Elasticity::off, Elasticity::manual,
                   Elasticity::automatic}[in.choice(*node, "elastic", {"off", "manual", "auto"})];
  return limits;
}

std::uint32_t read_pools(ValueReader& in, const YamlNode& node) {
  if (!in.mapping(node, "pools", {"members"})) return 0;
  const YamlNode* members = node.find("members");
  return members ? in.number(*members, "members", 0, kMostPoolMembers) : kMostPoolMembers;
}

Guarantee read_guarantee(ValueReader& in, const YamlNode& node) {
  Guarantee guarantee;
  if (node.kind != YamlNode::Kind::mapping) {
    guarantee.any = in.number(node, "guarantee", 0, kMostQuota);
    return guarantee;
  }
  for (const auto& [key, value] : node.entries) {
    const std::string type = in.name(key, "a GPU type");
    const std::uint32_t gpus = in.number(value, "guarantee for " + type, 0, kMostQuota);
    if (type == "default")
      guarantee.any = gpus;
    else
      guarantee.of_type[type] = gpus;
  }
  return guarantee;
}

std::optional<Quota> read_quota(ValueReader& in, const YamlNode& node,
                                const std::vector<std::string>& accounts) {
  if (node.is_null() || !in.mapping(node, "quota", {"gpus", "parent"})) return std::nullopt;
  Quota quota;
  if (const YamlNode* gpus = node.find("gpus"))
    quota.gpus = in.number(*gpus, "gpus", 0, kMostQuota);
  else
    in.fail(node, "quota needs gpus, the number of GPUs that all jobs of the tenant may hold");
  if (const YamlNode* parent = node.find("parent")) {
    quota.parent = to_lower(in.name(*parent, "parent"));
    if (quota.parent == "root")
      in.fail(*parent, "parent root is above every account; name an account for this tenant alone");
    if (std::find(accounts.begin(), accounts.end(), quota.parent) != accounts.end())
      in.fail(*parent, fmt::format("parent {} is one of the tenant's own accounts", quota.parent));
  }
  if (accounts.empty())
    in.fail(node, "quota needs accounts: Slurm counts GPUs by account");
  else if (accounts.size() > 1 && quota.parent.empty())
    in.fail(node, fmt::format("quota needs parent: Slurm counts the jobs of the {} accounts "
                              "together only in an account above them",
                              accounts.size()));
  return quota;
}

Sizing read_sizing(ValueReader& in, const Inherited& keys) {
  Sizing sizing;
  if (!in.mapping(keys.innermost(), "sizing",
                  {"per_gpu", "time", "signal_lead", "placement", "partition", "partitions", "qos",
                   "qos_allowed", "site_factor"}))
    return sizing;
  if (const YamlNode* node = keys.find("per_gpu")) sizing.by_type = read_shares(in, *node);
  if (const YamlNode* node = keys.find("time")) read_time(in, *node, sizing);
  if (const YamlNode* node = keys.find("signal_lead"))
    sizing.signal_lead_s = in.number(*node, "signal_lead", 0, kMostLead);
  if (const YamlNode* node = keys.find("placement")) {
    constexpr PlacementStrategy kPlacements[] = {PlacementStrategy::any, PlacementStrategy::pack,
                                                 PlacementStrategy::spread};
    sizing.placement = kPlacements[in.choice(*node, "placement", {"any", "pack", "spread"})];
  }
  read_pair(in, keys, "partition", "partitions", sizing.partition, sizing.partitions);
  read_pair(in, keys, "qos", "qos_allowed", sizing.qos, sizing.qos_allowed);
  if (const YamlNode* node = keys.find("site_factor"))
    sizing.site_factor = in.number(*node, "site_factor", 0, kMostSiteFactor);
  return sizing;
}

}  // namespace bellows
