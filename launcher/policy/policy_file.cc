// SPDX-License-Identifier: Apache-2.0
#include "launcher/policy/policy_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "common/fd.h"
#include "launcher/slurm/conf.h"
#include "slurm/conf_path.h"

namespace bellows {
namespace {

constexpr std::size_t kMostPolicyBytes = 1 << 20;
constexpr std::size_t kMostConfBytes = 64 << 20;

/// The hosts of slurmctld, or what names them.
std::string controllers() {
  const auto conf = SlurmConf::read(
      slurm_conf_path(), [](const std::string& path) { return read_file(path, kMostConfBytes); });
  const std::vector<std::string> hosts = conf ? conf->controllers() : std::vector<std::string>();
  return hosts.empty() ? "a host that 'scontrol ping' names"
                       : fmt::format("{}", fmt::join(hosts, " or "));
}

}  // namespace

Result<Policy> read_policy(const std::string& path, const std::string& else_do) {
  const auto text = read_file(path, kMostPolicyBytes);
  if (text) return load_policy(*text, path);
  if (text.error().kind != ErrorKind::not_found || path != default_policy_path())
    return text.error();
  return Error{ErrorKind::not_found,
               fmt::format("there is no {} on this machine; the policy is on the controllers only: "
                           "run this on {}, or {}",
                           path, controllers(), else_do)};
}

}  // namespace bellows
