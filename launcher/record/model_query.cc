// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/model_query.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "launcher/base/job_paths.h"
#include "launcher/base/program_output.h"
#include "launcher/slurm/step_environment.h"

namespace bellows {
namespace {

/// Who wants to see a job's state does not wait longer for a node that hangs.
constexpr std::chrono::seconds kLimit{5};
constexpr std::size_t kMostText = 1 << 20;

std::vector<std::string> command_for(const SlurmJob& job, const Contract& contract) {
  std::vector<std::string> words = {"srun",
                                    "--overlap",
                                    fmt::format("--jobid={}", job.id),
                                    fmt::format("--nodes={}", job.nodes.size()),
                                    fmt::format("--ntasks={}", job.nodes.size()),
                                    "--ntasks-per-node=1",
                                    "--gres=none",
                                    "--mpi=none",
                                    "--overcommit",
                                    "--kill-on-bad-exit=0",
                                    "--quiet",
                                    "--chdir=/",
                                    "--job-name=bellows-models",
                                    own_program(),
                                    "model",
                                    "progress"};
  for (std::string& name : Contract::split_list(contract.extra_value(Contract::kModelsKey)))
    words.push_back(std::move(name));
  return words;
}

}  // namespace

std::vector<NodeModels> ask_model_progress(const SlurmJob& job, const Contract& contract) {
  const auto output =
      output_of(command_for(job, contract), kLimit, kMostText, host_step_environment(environ));
  if (!output) return {};
  std::set<std::string> nodes;
  for (const NodeShare& share : job.nodes) nodes.insert(share.node);
  return parse_model_progress(output->out, nodes);
}

}  // namespace bellows
