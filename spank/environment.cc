// SPDX-License-Identifier: Apache-2.0
#include "spank/environment.h"

#include <fmt/core.h>

#include "common/text.h"
#include "common/variables.h"
#include "slurm/gres.h"

namespace bellows::spank {
namespace {

std::optional<std::string> unless_empty(std::string text) {
  if (text.empty()) return std::nullopt;
  return text;
}

/// "4", "gpu:4" and "a100:4" all end in the count.
std::optional<std::uint64_t> last_count(const std::string& value) {
  return parse_uint(split(value, ':').back());
}

/// A count for each node, task or GPU fits when its product with `holders` is what the job holds.
void drop_unless(std::vector<Change>& changes, const Lookup& lookup, const char* name,
                 std::uint64_t holders, std::uint64_t expected) {
  const auto value = lookup(name);
  if (!value) return;
  const auto count = last_count(*value);
  if (!count || *count > expected || *count * holders != expected)
    changes.push_back({name, std::nullopt});
}

bool says_tasks(const Lookup& lookup) {
  for (const char* name :
       {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
        "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES"})
    if (lookup(name)) return true;
  return false;
}

}  // namespace

void add_extra(Contract& contract, const char* key, std::string value) {
  if (value.empty() || !contract.extra_value(key).empty()) return;
  contract.extra.emplace_back(key, std::move(value));
}

std::string admitted_line(Contract contract) {
  std::erase_if(contract.extra, [](const auto& entry) {
    return entry.first == kUserKey || entry.first == kAccountKey;
  });
  return contract.to_string();
}

JobVariables job_variables(const Contract& contract, std::uint32_t job_id,
                           const std::string& user_dir, const std::string& model_socket) {
  auto directory = expand_path(contract.checkpoint_dir, contract.extra_value(kUserKey),
                               contract.extra_value(kAccountKey), std::to_string(job_id));
  JobVariables variables;
  if (!directory) variables.status = directory.error();
  variables.changes = {
      {"BELLOWS_CONTRACT", admitted_line(contract)},
      {"BELLOWS_TENANT", contract.tenant},
      {"BELLOWS_FRAMEWORK", unless_empty(contract.framework)},
      {"BELLOWS_FRAMEWORK_VERSION", unless_empty(contract.framework_version)},
      {"BELLOWS_GPUS_RANGE", contract.gpus.to_string()},
      {"BELLOWS_CHECKPOINT_DIR", directory ? unless_empty(*directory) : std::nullopt},
      {"BELLOWS_RUN_DIR", user_dir},
      {kModelSocketVariable, unless_empty(model_socket)},
  };
  return variables;
}

std::vector<Change> no_job_variables() {
  std::vector<Change> changes;
  for (const char* name : kJobVariables) changes.push_back({name, std::nullopt});
  return changes;
}

std::uint32_t count_gpus(std::string_view tres, std::string_view gres) {
  const std::uint32_t gpus = gpus_in_gres(tres);
  return gpus > 0 ? gpus : gpus_in_gres(gres);
}

std::string size_marker(HeldSize held) { return fmt::format("{}/{}", held.gpus, held.nodes); }

bool is_elastic(const Contract& contract) { return contract.gpus.min() != contract.gpus.max(); }

std::vector<Change> size_corrections(HeldSize held, bool elastic, const Lookup& lookup) {
  if (held.gpus == 0 || held.nodes == 0) return {};
  if (!elastic && says_tasks(lookup)) return {{kSizeVariable, size_marker(held)}};
  const std::string gpus = std::to_string(held.gpus);
  std::vector<Change> changes = {
      {"SLURM_NTASKS", gpus},
      {"SLURM_NPROCS", gpus},
      {kSizeVariable, size_marker(held)},
  };
  // Only where the job was submitted with --gpus: a step without it gets the GPUs of its nodes,
  // while with it a one-task step in a job of two nodes is refused.
  if (lookup("SLURM_GPUS")) changes.push_back({"SLURM_GPUS", gpus});
  drop_unless(changes, lookup, "SLURM_NTASKS_PER_NODE", held.nodes, held.gpus);
  drop_unless(changes, lookup, "SLURM_GPUS_PER_NODE", held.nodes, held.gpus);
  drop_unless(changes, lookup, "SLURM_GPUS_PER_TASK", held.gpus, held.gpus);
  drop_unless(changes, lookup, "SLURM_NTASKS_PER_GPU", held.gpus, held.gpus);
  // How many sockets the new nodes have is not known here, so these can't be checked.
  if (lookup("SLURM_NTASKS") != gpus) {
    for (const char* name : {"SLURM_NTASKS_PER_SOCKET", "SLURM_GPUS_PER_SOCKET"})
      if (lookup(name)) changes.push_back({name, std::nullopt});
  }
  return changes;
}

}  // namespace bellows::spank
