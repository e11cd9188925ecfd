// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "common/result.h"
#include "launcher/machine/machine.h"
#include "launcher/ranks/output_relay.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/record/finished_file.h"
#include "launcher/record/history_writer.h"
#include "launcher/run/active_marker.h"
#include "launcher/run/control_server.h"
#include "launcher/run/controller_link.h"
#include "launcher/run/inquiries.h"
#include "launcher/run/run_context.h"
#include "launcher/run/server_watch.h"
#include "launcher/run/step_processes.h"
#include "slurm/interface.h"

namespace bellows {

/// `bellows run`: tells RunMachine what happens and carries out what it wants. One thread, one poll
/// loop; SIGCHLD, SIGUSR1, SIGTERM, SIGINT and SIGHUP must be blocked before it is made.
class RunShell {
 public:
  RunShell(Slurm& slurm, RunContext context, SlurmJob job, RankLayout layout);
  /// Runs to the end. The exit status for the batch script.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  Status open_resources();
  void say(const std::string& text);
  void loop_once();
  void wait() const;
  void note_pause();
  void read_signals();
  void read_requests();
  void read_ends();
  void read_answers();
  void ask_about_job();
  void ask_controller();
  /// Passes the input to the machine, and carries out all resulting actions.
  void feed(Input input);
  void feed(std::vector<Input> inputs);
  /// The answers.
  std::vector<Input> carry_out(const Action& action);
  std::vector<Input> act(const action::Say& what);
  std::vector<Input> act(const action::Record& what);
  std::vector<Input> act(const action::Reply& what);
  std::vector<Input> act(const action::PlanNextStart& plan);
  std::vector<Input> act(const action::LeaveFinished&);
  std::vector<Input> act(const action::RemoveMarker&);
  std::vector<Input> act(const action::Exit&);

  RunContext context_;
  ActiveMarker marker_;
  FinishedFile finished_;
  Inquiries inquiries_;
  RunMachine machine_;
  std::uint32_t restart_;
  OrderedBatch recorded_;
  std::optional<HistoryWriter> log_;
  std::optional<OutputRelay> output_;
  std::optional<ControlServer> control_;
  std::optional<StepProcesses> processes_;
  std::optional<ControllerLink> controller_;
  std::optional<ServerWatch> server_watch_;
  Fd signals_;
  Clock::time_point last_loop_{};
  std::deque<Input> inbox_;
};

}  // namespace bellows
