// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "common/text.h"
#include "common/variables.h"
#include "launcher/slurm/step_environment.h"

namespace bellows {
namespace {

// The kinds of a framework, those of a later release left out; none: it has all.
std::vector<std::string_view> kinds_of(const std::vector<std::string>& listed) {
  std::vector<std::string_view> names;
  for (const std::string& name : listed)
    if (auto kind = parse_launch_kind(name)) names.push_back(launch_kind_name(*kind));
  return names;
}

std::string framework_name(const Contract& contract) {
  return contract.framework_version.empty()
             ? contract.framework
             : fmt::format("{}:{}", contract.framework, contract.framework_version);
}

}  // namespace

bool needs_pmix(LaunchKind kind) { return kind == LaunchKind::mpi || kind == LaunchKind::nccl; }

Result<LaunchKind> choose_launch_kind(const std::string& asked,
                                      const std::optional<Contract>& contract) {
  const auto listed = contract ? Contract::split_list(contract->extra_value(Contract::kLaunchKey))
                               : std::vector<std::string>();
  const auto names = kinds_of(listed);
  if (!listed.empty() && names.empty())
    return Error{ErrorKind::denied,
                 fmt::format("framework {} has only the launch kinds {}, which this release of "
                             "Bellows does not know",
                             framework_name(*contract), fmt::join(listed, ", "))};
  const std::string name(!asked.empty() ? asked : names.empty() ? "mpi" : names.front());
  if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end())
    return Error{ErrorKind::denied,
                 fmt::format("framework {} has no launch kind {}; use --kind={}",
                             framework_name(*contract), name, fmt::join(names, " or --kind="))};
  const auto kind = parse_launch_kind(name);
  if (!kind) return Error{ErrorKind::invalid, fmt::format("\"{}\" is not a launch kind", name)};
  if (*kind == LaunchKind::torch && !contract)
    return Error{ErrorKind::denied,
                 "--kind=torch needs a job with a Bellows contract (sbatch --framework or "
                 "--gpus-range) and the plugin spank_bellows on its nodes, which gives each rank "
                 "RANK, LOCAL_RANK and WORLD_SIZE; without them use --kind=mpi"};
  return *kind;
}

std::vector<std::string> framework_command(const std::optional<Contract>& contract,
                                           const std::vector<std::string>& program) {
  std::vector<std::string> words;
  if (contract)
    for (const std::string_view word : split(contract->extra_value(Contract::kPrefixKey), ' '))
      if (!word.empty()) words.emplace_back(word);
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::vector<std::string> batch_variables(const std::optional<Contract>& contract,
                                         std::optional<std::uint64_t> ordered) {
  if (!contract || !contract->batch) return {};
  std::vector<std::string> variables = {
      fmt::format("{}={}", kBatchRangeVariable, contract->batch->to_string())};
  if (ordered) variables.push_back(fmt::format("{}={}", kBatchVariable, *ordered));
  return variables;
}

std::vector<std::string> param_server_command(const ParamServerOptions& options,
                                              const std::string& socket, const RankLayout& layout,
                                              const std::vector<std::string>& learner) {
  std::vector<std::string> words = {"bellows-ps", "--socket=" + socket,
                                    fmt::format("--learners={}", layout.trainers())};
  if (options.threads) words.push_back(fmt::format("--threads={}", *options.threads));
  if (options.staleness) words.push_back(fmt::format("--staleness={}", *options.staleness));
  if (options.checkpoint_every)
    words.push_back(fmt::format("--checkpoint-every={}", *options.checkpoint_every));
  if (!options.mode.empty()) words.push_back("--mode=" + options.mode);
  words.emplace_back("--");
  words.insert(words.end(), learner.begin(), learner.end());
  return words;
}

void add_to_path(std::vector<std::string>& environment, const std::string& directory) {
  for (std::string& entry : environment)
    if (entry.starts_with("PATH=")) {
      entry += (entry == "PATH=" ? "" : ":") + directory;
      return;
    }
  environment.push_back("PATH=" + directory);
}

std::vector<std::string> RankCommand::words(const std::string& step_name,
                                            const std::vector<std::string>& program) const {
  std::vector<std::string> words = {"srun",
                                    needs_pmix(kind_) ? "--mpi=pmix" : "--mpi=none",
                                    "--input=none",
                                    "--kill-on-bad-exit=1",
                                    "--quiet",
                                    "--label",
                                    "--job-name=" + step_name};
  for (std::string& option : layout_.rank_options()) words.push_back(std::move(option));
  // The server and the learners share the rank's CPUs.
  if (!near()) words.push_back("--cpu-bind=" + (cpu_bind_ == kBindNear ? "none" : cpu_bind_));
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::vector<std::string> RankCommand::environment(
    const char* const* script, const std::string& agent_socket,
    const std::optional<Rendezvous>& rendezvous) const {
  std::vector<std::string> variables = srun_environment(script);
  const auto set = [&variables](const char* name, std::string_view value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  set("BELLOWS_SOCKET", agent_socket);
  set(kLaunchVariable, launch_kind_name(kind_));
  if (near()) set(kBindVariable, kBindNear);
  if (rendezvous) {
    set(kMasterAddrVariable, rendezvous->address);
    set(kMasterPortVariable, std::to_string(rendezvous->port));
  }
  // Ranks of MPI spin while they wait, and each would take from another the CPU that it waits for.
  if (layout_.crowded()) set("OMPI_MCA_mpi_yield_when_idle", "1");
  return variables;
}

}  // namespace bellows
