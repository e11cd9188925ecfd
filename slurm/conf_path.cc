// SPDX-License-Identifier: Apache-2.0
#include "slurm/conf_path.h"

#include <unistd.h>

#include <cstdlib>

#include "slurm/compat.h"

namespace bellows {
namespace {

/// Where slurmd keeps what it got from slurmctld, for the commands on its node.
constexpr const char* kFetchedConf = "/run/slurm/conf/slurm.conf";

}  // namespace

std::string slurm_conf_path() {
  if (const char* path = std::getenv("SLURM_CONF")) return path;
  char* built_for = slurm_get_extra_conf_path ? slurm_get_extra_conf_path("slurm.conf") : nullptr;
  const std::string path = built_for ? built_for : "/etc/slurm/slurm.conf";
  slurm_xfree(reinterpret_cast<void**>(&built_for));
  return access(path.c_str(), F_OK) != 0 && access(kFetchedConf, F_OK) == 0 ? kFetchedConf : path;
}

std::string beside(const std::string& path, const std::string& name) {
  const auto slash = path.rfind('/');
  return (slash == std::string::npos ? "" : path.substr(0, slash + 1)) + name;
}

std::string default_policy_path() {
  if (const char* path = std::getenv("BELLOWS_CONF"); path && *path) return path;
  return beside(slurm_conf_path(), "bellows.yaml");
}

}  // namespace bellows
