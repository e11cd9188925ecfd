// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/child.h"
#include "launcher/ranks/rank_names.h"
#include "launcher/ranks/task_end.h"

namespace bellows {

/// Why a step of ranks ended, from what srun and its slurmstepds wrote on standard error and what
/// the agents saw. srun names the first task that ended badly first, unless others failed because
/// an agent had told them of it; those it then kills say no more than that.
class RankFailure {
 public:
  /// Whose doing it was, as far as the output tells.
  enum class Culprit {
    program,  ///< it would fail again, unless it was a rare accident
    cluster,  ///< a node or Slurm: the program did nothing wrong
    missing   ///< the program, or a Python module of it, is not there: nor will it be next time
  };

  /// `ranks`: node -> its ranks, since for some failures srun says only which task it was.
  explicit RankFailure(std::map<std::string, std::vector<std::uint32_t>> ranks = {})
      : ranks_(std::move(ranks)) {}

  /// A line of srun or of a slurmstepd.
  void take_line(const std::string& line);
  /// A line that a rank wrote to its standard error.
  void take_words(const std::string& line);
  /// An agent's rank went without a word. To be called before take_line() gets what srun wrote at
  /// about the same time: only ranks that went before srun's first word may be named instead of it.
  void lost(std::uint32_t rank, const std::string& node);

  /// What another srun has heard of a node of the step; nothing when empty.
  void node_lost(const std::string& node);

  /// For a person: which ranks Slurm could not start, as far as it says, and why; empty: none that
  /// is known. The others wait for them.
  std::string no_start() const;
  /// How the step ended, from how srun did: its status tells nothing of ranks that were not
  /// started, whose node was lost or for which srun did not wait, and is 0 when all others ended
  /// well.
  ChildExit true_exit(const ChildExit& exit) const;
  /// For a person: "rank 3 on n2 was killed by signal 9 (Killed)".
  std::string cause(const ChildExit& exit) const;
  Culprit culprit(const ChildExit& exit) const;
  /// The last line that the program itself wrote; empty without one.
  const std::string& last_words() const { return last_words_; }
  const std::string& lost_node() const { return lost_node_; }

 private:
  void take_srun(std::string_view text);
  void take_stepd(std::string_view text);
  void take_launch(const LaunchFailure& failure);
  std::string first_end() const;

  std::map<std::string, std::vector<std::uint32_t>> ranks_;
  std::string lost_node_;       ///< in Slurm's judgement
  std::string launch_;          ///< which node did not start its ranks, and why
  RankNames unlaunched_;        ///< ranks that a slurmstepd could not start
  std::string no_launch_;       ///< why
  std::string no_launch_wait_;  ///< in srun's words: not all were started in time
  bool no_end_ = false;         ///< srun ended before the step did
  std::string no_step_;         ///< why Slurm did not make the step
  std::string exec_;            ///< why the program could not be executed
  bool out_of_memory_ = false;
  std::vector<TaskEnd> ends_;          ///< as srun tells them
  std::optional<std::uint32_t> lost_;  ///< the first rank that went without a word
  std::string lost_on_;
  std::string last_words_;
};

}  // namespace bellows
