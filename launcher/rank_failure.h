// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launcher/child.h"
#include "launcher/task_end.h"

namespace bellows {

/// Why a step of ranks ended, from what srun and its slurmstepds wrote on standard error and what
/// the agents saw. srun names the first task that ended badly first, unless others failed because
/// an agent had told them of it; those it then kills say no more than that.
class RankFailure {
 public:
  /// Who is to blame decides what a restart may cost.
  enum class Blame {
    program,  ///< it would fail again, unless it was a rare accident
    cluster,  ///< a node or Slurm: the program did nothing wrong
    missing   ///< the program could not even be executed: it will not be there next time either
  };

  /// One line of srun's standard error, which also carries the ranks' own.
  void take_line(const std::string& line);
  /// An agent's rank went without a word. To be called before take_line() gets what srun wrote at
  /// about the same time: only ranks that went before srun's first word may be named instead of it.
  void lost(std::uint32_t rank, const std::string& node);

  /// For a person: "rank 3 on n2 was killed by signal 9 (Killed)".
  std::string cause(const ChildExit& exit) const;
  Blame blame(const ChildExit& exit) const;
  /// The last line that the program itself wrote; empty without one.
  const std::string& last_words() const { return last_words_; }
  const std::string& lost_node() const { return lost_node_; }

 private:
  bool take_srun(const std::string& text);
  bool take_stepd(const std::string& text);
  std::string first_end() const;

  std::string lost_node_;  ///< in Slurm's judgement
  std::string launch_;     ///< why a node did not start its ranks
  std::string no_step_;    ///< why Slurm did not make the step
  std::string exec_;       ///< why the program could not be executed
  std::string step_;       ///< why Slurm ended the step
  bool out_of_memory_ = false;
  std::vector<TaskEnd> ends_;          ///< as srun tells them
  std::optional<std::uint32_t> lost_;  ///< the first rank that went without a word
  std::string lost_on_;
  std::string last_words_;
};

}  // namespace bellows
