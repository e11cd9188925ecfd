// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/side_question.h"
#include "launcher/machine/action.h"
#include "launcher/machine/input.h"
#include "launcher/machine/machine.h"
#include "launcher/record/finished_file.h"
#include "launcher/run/owner_watch.h"
#include "launcher/run/run_context.h"
#include "launcher/slurm/node_watch.h"
#include "launcher/slurm/reach.h"
#include "slurm/interface.h"

namespace bellows {

/// What a run asks slurmctld and the file system. Questions that may take long are asked in a
/// separate process, so that commits continue; the rest is answered at once.
class Inquiries {
 public:
  using Clock = std::chrono::steady_clock;

  /// All must outlive this.
  Inquiries(Slurm& slurm, const RunContext& context, const FinishedFile& finished);

  /// An answer that is not wanted stays where it is, and must not wake anybody.
  void add_poll(std::vector<pollfd>& fds, const RunMachine::Wanted& wanted) const;
  /// The time limits and nodes that were asked for, when there is an answer.
  std::vector<Input> answers(Clock::time_point now);
  /// Whether a successor may have to find that the program has finished.
  bool may_have_successor() const { return slurm_.requeues_the_finished(); }
  /// What slurmctld says about the job, once it has been found to answer.
  std::optional<input::JobLook> look_at_job(Clock::time_point now);
  /// Why slurmctld does not answer; once for each trouble.
  std::optional<std::string> trouble() { return reach_.trouble(); }
  /// They may not begin in a directory that another run has taken: looks at once.
  void ranks_start() { owner_.begin(); }
  /// Who owns the checkpoint directory; looks every few seconds.
  std::optional<input::Owner> look_at_owner(Clock::time_point now);

  // What each answers at once, if anything. `job`: as the machine has it.
  std::vector<Input> act(const action::LookAround& look, const SlurmJob& job);
  std::vector<Input> act(const action::LookAtSteps&, const SlurmJob& job);
  std::vector<Input> act(const action::SignalStep& signal, const SlurmJob& job);
  std::vector<Input> act(const action::AskLimits&, const SlurmJob& job);
  std::vector<Input> act(const action::AskNodes& ask, const SlurmJob& job);
  std::vector<Input> act(const action::FindStepBelow& find, const SlurmJob& job);
  std::vector<Input> act(const action::CountFruitlessRuns&, const SlurmJob& job);
  std::vector<Input> act(const action::WalkRoad& road, const SlurmJob& job);

 private:
  bool halt_was_lost_before(const SlurmJob& job) const;

  Slurm& slurm_;
  const RunContext& context_;
  const FinishedFile& finished_;
  SlurmReach reach_;
  SideQuestion limits_;
  NodeWatch nodes_;
  OwnerWatch owner_;
};

}  // namespace bellows
