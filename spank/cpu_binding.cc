// SPDX-License-Identifier: Apache-2.0
#include "spank/cpu_binding.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "common/fd.h"
#include "common/text.h"
#include "spank/gpu_addresses.h"

namespace bellows::spank {
namespace {

constexpr std::size_t kMostBytes = 65536;
/// Linux itself goes to 8192.
constexpr std::uint64_t kMostCpu = 65535;

Cpus common_part(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

Cpus read_cpus(const std::string& path) {
  const auto text = read_file(path, kMostBytes);
  if (!text) return {};
  auto cpus = parse_cpu_list(trim(*text));
  return cpus ? *std::move(cpus) : Cpus();
}

/// Part `index` of `parts` of a list of cores, as even as whole cores allow.
Cpus share_of(const std::vector<Cpus>& units, unsigned parts, unsigned index) {
  Cpus share;
  for (std::size_t i = units.size() * index / parts; i < units.size() * (index + 1) / parts; ++i)
    share.insert(units[i].begin(), units[i].end());
  return share;
}

/// What is shared out: whole cores, or where there are too few of them, single CPUs.
std::vector<Cpus> units_of(const NodeCpus& node, const Cpus& cpus, unsigned ranks) {
  std::vector<Cpus> units;
  for (const Cpus& core : node.cores)
    if (Cpus part = common_part(core, cpus); !part.empty()) units.push_back(std::move(part));
  if (units.size() >= ranks) return units;
  units.clear();
  for (const unsigned cpu : cpus) units.push_back({cpu});
  return units;
}

}  // namespace

Result<Cpus> parse_cpu_list(std::string_view text) {
  Cpus cpus;
  if (text.empty()) return cpus;
  for (const std::string_view piece : split(text, ',')) {
    const auto dash = piece.find('-');
    const auto first = parse_uint(piece.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_uint(piece.substr(dash + 1));
    if (!first || !last || *first > *last || *last > kMostCpu)
      return Error{ErrorKind::invalid, fmt::format("\"{:.80}\" is not a list of CPUs", text)};
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<unsigned>(cpu));
  }
  return cpus;
}

std::optional<Cpus> cpus_near_gpu(const NodeCpus& node, unsigned ranks, unsigned rank,
                                  unsigned least) {
  if (ranks > node.near.size() || rank >= ranks) return std::nullopt;
  std::map<Cpus, std::vector<unsigned>> sides;  // CPUs -> the ranks that may use them
  for (unsigned i = 0; i < ranks; ++i) sides[common_part(node.near[i], node.allowed)].push_back(i);
  std::optional<Cpus> mine;
  Cpus seen;
  for (const auto& [cpus, users] : sides) {
    if (cpus.empty() || !common_part(cpus, seen).empty()) return std::nullopt;
    seen.insert(cpus.begin(), cpus.end());
    const auto count = static_cast<unsigned>(node.own ? users.size() : 1);
    const std::vector<Cpus> units = units_of(node, cpus, count);
    for (unsigned part = 0; part < count; ++part) {
      Cpus share = share_of(units, count, part);
      if (share.size() < std::max(least, 1u)) return std::nullopt;
      if (node.own ? users[part] == rank : std::count(users.begin(), users.end(), rank) > 0)
        mine = std::move(share);
    }
  }
  return mine;
}

std::vector<Cpus> cpus_near_gpus(const std::string& root, const std::set<unsigned>& minors) {
  std::map<std::string, Cpus> by_place;  // PCI addresses have a fixed width
  for (const auto& [minor, place] : gpu_addresses(root))
    if (minors.contains(minor))
      by_place[place] = read_cpus(root + "/sys/bus/pci/devices/" + place + "/local_cpulist");
  std::vector<Cpus> near;
  if (by_place.size() != minors.size()) return near;
  for (auto& [place, cpus] : by_place) near.push_back(std::move(cpus));
  return near;
}

std::vector<Cpus> by_core(const std::string& root, const Cpus& cpus) {
  std::vector<Cpus> cores;
  Cpus seen;
  for (const unsigned cpu : cpus) {
    if (seen.contains(cpu)) continue;
    Cpus core = common_part(
        read_cpus(fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root,
                              cpu)),
        cpus);
    core.insert(cpu);
    seen.insert(core.begin(), core.end());
    cores.push_back(std::move(core));
  }
  return cores;
}

}  // namespace bellows::spank
