// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/protocol/rendezvous.h"
#include "common/contract.h"
#include "common/launch_kind.h"
#include "common/result.h"
#include "launcher/ranks/rank_layout.h"

namespace bellows {

/// The kind that was asked for, else the first that the contract's framework has, else mpi.
/// denied: the framework does not have it, or it needs the SPANK plugin and the job has no
/// contract; the sentence names the kinds that are left.
Result<LaunchKind> choose_launch_kind(const std::string& asked,
                                      const std::optional<Contract>& contract);

/// Whether ranks of the kind are started with Slurm's mpi/pmix.
bool needs_pmix(LaunchKind kind);

/// The program, after the words that the contract's framework puts before each program.
std::vector<std::string> framework_command(const std::optional<Contract>& contract,
                                           const std::vector<std::string>& program);

/// What tells ranks which batch to use: that of the contract's range which was ordered, and the
/// range. Nothing when there is no range.
std::vector<std::string> batch_variables(const std::optional<Contract>& contract,
                                         std::optional<std::uint64_t> ordered);

/// How the parameter server is to be, as far as that was given.
struct ParamServerOptions {
  std::optional<std::uint32_t> threads{};
  std::string mode{};
  std::optional<std::uint32_t> staleness{};
  std::optional<std::uint32_t> checkpoint_every{};  ///< seconds; 0: only when the job stops

  bool any() const { return threads || !mode.empty() || staleness || checkpoint_every; }
};

/// The program of the one rank of kind ps: bellows-ps, which starts a learner for each GPU.
std::vector<std::string> param_server_command(const ParamServerOptions& options,
                                              const std::string& socket, const RankLayout& layout,
                                              const std::vector<std::string>& learner);

/// In a container there is another place for the programs of Bellows, which PATH has too. Last:
/// learners must find what they found before, and a bellows-ps of the job's own is used first.
void add_to_path(std::vector<std::string>& environment, const std::string& directory);

/// What the name of each step of ranks begins with.
inline constexpr const char* kRanksStep = "bellows-ranks-";

/// The srun that starts the ranks. A value.
class RankCommand {
 public:
  /// `cpu_bind`: as of RunOptions. `layout` must outlive this.
  RankCommand(LaunchKind kind, std::string cpu_bind, const RankLayout& layout)
      : kind_(kind), cpu_bind_(std::move(cpu_bind)), layout_(layout) {}

  std::vector<std::string> words(const std::string& step_name,
                                 const std::vector<std::string>& program) const;
  /// The environment of srun, made from that of the batch script. What a single rank must be told,
  /// such as its number, is the SPANK plugin's to add: an image has nothing that could.
  std::vector<std::string> environment(const char* const* script, const std::string& agent_socket,
                                       const std::optional<Rendezvous>& rendezvous) const;

 private:
  bool near() const { return cpu_bind_ == kBindNear && kind_ != LaunchKind::ps; }

  LaunchKind kind_;
  std::string cpu_bind_;
  const RankLayout& layout_;
};

}  // namespace bellows
