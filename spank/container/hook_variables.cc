// SPDX-License-Identifier: Apache-2.0
#include "spank/container/hook_variables.h"

#include <optional>

#include "common/launch_kind.h"
#include "common/text.h"

namespace bellows::container {
namespace {

constexpr std::size_t kMostHost = 255;
/// As the hook has them, so that a job's steps on other nodes choose the same.
constexpr std::uint64_t kFirstPort = 61000;
constexpr std::uint64_t kPorts = 4536;

std::string master_port(const VariableLookup& lookup) {
  const auto job = parse_uint(lookup("SLURM_JOB_ID").value_or(""));
  return job ? std::to_string(*job % kPorts + kFirstPort) : "";
}

void add_pytorch(const Spec& spec, const Variables& image, const VariableLookup& lookup,
                 Variables& variables) {
  const auto add = [&](const char* name, std::string value) {
    if (!value.empty()) variables.emplace_back(name, std::move(value));
  };
  const auto unless_said = [&](const char* name, std::string value) {
    if (!says(image, name) && !keeps(spec, name, lookup)) add(name, std::move(value));
  };
  add("RANK", lookup("SLURM_PROCID").value_or(""));
  add("LOCAL_RANK", lookup("SLURM_LOCALID").value_or(""));
  unless_said("WORLD_SIZE", lookup("SLURM_NTASKS").value_or(""));
  unless_said("MASTER_ADDR", first_host(lookup("SLURM_STEP_NODELIST").value_or("")));
  unless_said("MASTER_PORT", master_port(lookup));
  const auto tasks = parse_uint(lookup("SLURM_STEP_NUM_TASKS").value_or("1"));
  const auto nodes = parse_uint(lookup("SLURM_STEP_NUM_NODES").value_or("1"));
  // Unlike the hook, which would take away what the job's script has set.
  if (tasks && nodes && *tasks > *nodes && !lookup("OMP_NUM_THREADS"))
    unless_said("OMP_NUM_THREADS", "1");
}

void add_pmix(const VariableLookup& lookup, Variables& variables) {
  const std::string type = lookup("SLURM_MPI_TYPE").value_or("");
  if (!type.empty() && !type.starts_with("pmix")) return;
  constexpr std::pair<const char*, const char*> kModules[] = {
      {"PMIX_PTL_MODULE", "PMIX_MCA_ptl"},
      {"PMIX_SECURITY_MODE", "PMIX_MCA_psec"},
      {"PMIX_GDS_MODULE", "PMIX_MCA_gds"}};
  for (const auto& [from, to] : kModules)
    if (const auto value = lookup(from); value && !value->empty() && !lookup(to))
      variables.emplace_back(to, *value);
}

}  // namespace

std::string first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const auto close = list.find(']', at);
    if (close == std::string_view::npos) return "";
    const std::string_view ranges = list.substr(at + 1, close - at - 1);
    host += ranges.substr(0, ranges.find_first_of(",-"));
    at = close;
  }
  const bool good = host.size() <= kMostHost && std::all_of(host.begin(), host.end(), [](char c) {
                      return is_alphanumeric(c) || c == '-' || c == '.' || c == '_';
                    });
  return good ? host : "";
}

Variables hook_variables(const Spec& spec, const Variables& image, const VariableLookup& lookup) {
  Variables variables;
  const bool pytorch = says(image, "PYTORCH_VERSION") || keeps(spec, "PYTORCH_VERSION", lookup);
  // `bellows run` tells its ranks itself.
  if (pytorch && !lookup(kLaunchVariable)) add_pytorch(spec, image, lookup, variables);
  add_pmix(lookup, variables);
  return variables;
}

}  // namespace bellows::container
