// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/protocol/coordinator.h"
#include "checkpoint/protocol/protocol.h"
#include "checkpoint/protocol/step_choice.h"
#include "common/result.h"
#include "launcher/base/child.h"
#include "launcher/machine/node_policy.h"
#include "launcher/machine/open_saves.h"
#include "launcher/machine/own_stop.h"
#include "launcher/machine/restart_budget.h"
#include "launcher/machine/restore_tally.h"
#include "launcher/machine/storage_watch.h"
#include "launcher/machine/time_left.h"
#include "launcher/ranks/gang_start.h"
#include "launcher/ranks/hang_detector.h"
#include "launcher/ranks/output_relay.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/ranks/rank_ends.h"
#include "launcher/ranks/rank_failure.h"
#include "launcher/ranks/rank_layout.h"
#include "launcher/record/directory_claim.h"
#include "launcher/record/finished_file.h"
#include "launcher/record/history_writer.h"
#include "launcher/run/active_marker.h"
#include "launcher/run/agent_link.h"
#include "launcher/run/control_server.h"
#include "launcher/run/owner_watch.h"
#include "launcher/run/run_context.h"
#include "launcher/slurm/reach.h"
#include "slurm/interface.h"

namespace bellows {

/// `bellows run`: starts agents and ranks, commits checkpoints, stops on demand, starts again after
/// faults and records how the run ended. One thread, one poll loop; SIGCHLD, SIGUSR1, SIGTERM,
/// SIGINT and SIGHUP must be blocked before it is made.
class Supervisor {
 public:
  Supervisor(Slurm& slurm, RunContext context, SlurmJob job, RankLayout layout);
  /// Runs to the end. The exit status for the batch script.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kNoLimit = std::chrono::hours(24 * 365);
  /// What the loop waits for.
  enum class Phase {
    greeting,     ///< every agent's hello
    finding,      ///< the newest checkpoint that verifies
    restoring,    ///< every agent to offer it
    running,      ///< ranks at work
    saving,       ///< a program without libbellows to write its own checkpoint
    judging,      ///< the ranks have ended well: finished, stopped, or dead unheard?
    draining,     ///< ranks have ended: what they gave to the agents becomes checkpoints
    clearing,     ///< both steps to end
    waiting,      ///< a pause before the next attempt
    handed_over,  ///< whoever asked for the stop to requeue the job
    forgotten     ///< slurmctld to clear the nodes of a run that it lost
  };
  /// What follows once both steps have ended.
  enum class Next { restart, stop, complete, fail, leave };
  struct Stop {
    std::string reason;
    std::optional<std::uint32_t> gpus;
    std::uint64_t client = 0;   ///< 0: nobody outside waits
    bool hold = false;          ///< the job waits for its release then
    bool from_scratch = false;  ///< the program's work may be lost
    bool fruitless = false;     ///< this run saved nothing new
  };

  // supervisor.cc: the loop and the way of one attempt
  Status open_resources();
  void begin_attempt();
  void start_agents();
  bool keeps_agents();
  std::string attempt_name() const;
  void loop_once();
  int poll_timeout() const;
  void handle_signals();
  /// The attempt has no ranks yet.
  bool beginning() const {
    return phase_ == Phase::greeting || phase_ == Phase::finding || phase_ == Phase::restoring;
  }
  bool is_stale(const Event& event) const;
  void handle_agent_event(const Event& event);
  void say_hello();
  void offer_step(const Event& found);
  void leave_step(const Event& bad);
  void start_ranks();
  void note_commit(const Event& event);
  void check_children();
  void check_deadline();

  // supervisor_owner.cc: other runs
  bool give_way_to_owner();
  bool runs_anew(const SlurmJob& job);
  void watch_owner();
  void leave_to(const std::string& owner, std::uint32_t job);

  // supervisor_agents.cc: what agents still write, and their end
  std::vector<Event> hear_agents();
  void read_agents();
  bool agent_lost() const { return agents_ && !agents_->loss().empty(); }
  void agent_died();
  void drain(Phase phase);
  bool drained() const;
  void end_drain();
  void dismiss_agents();

  // supervisor_watch.cc: what goes wrong while ranks run
  void begin_watch();
  void note_rank(const Event& event);
  void note_progress(const Event& event);
  void note_save_error(const Event& event);
  void heed_history();
  void note_pause();
  void watch();
  void drop_hang(const std::string& why);
  void late_start(const GangStart::Late& late);
  void read_rank_errors();
  void drop_ranks();
  void agent_failed(const Event& event);
  bool ranks_over();
  /// Takes their last words; they must be over.
  ChildExit end_of_ranks();
  void ranks_failed(const ChildExit& exit);
  void rank_died(const std::string& cause, int exit_code);
  // supervisor_own.cc: programs that do not use libbellows
  bool finished_before();
  bool halted_before();
  bool saves_by_itself() const;
  std::string begin_of_ranks() const;
  void note_unused(const std::string& when);
  void begin_own_stop();
  bool signal_ranks();
  void watch_own_stop();
  void end_own_stop(OwnStopEnd end, const std::string& trouble);

  // supervisor_nodes.cc: nodes that are drained, lost or back
  bool can_leave() const;
  void watch_nodes();
  bool take_layout_of(const SlurmJob& job);
  bool never_ends() const;
  bool step_stays();
  // supervisor_time.cc: the time that is left
  double seconds_now() const;
  bool can_stop_in_time() const;
  void watch_time();
  void heed(const JobLimits& limits);
  void complain_of_grace();
  void heed_signal(const std::string& signal);
  bool leads_nowhere();

  // supervisor_stop.cc: stops, faults and ends
  void handle_request(const ControlServer::Request& request);
  void answer(std::uint64_t client, const std::string& json);
  void request_stop(Stop stop);
  void send_decision(const Command& command);
  void ranks_ended(const ChildExit& exit);
  void judge();
  void fault(const std::string& cause, Blame blame, int exit_code);
  void ask_slurm();
  void act_on_job_state(const SlurmJob& job);
  void act_on_job_end(const SlurmJob& job);
  Next out_of_budget();
  void clear(Next next, const std::string& cause);
  void escalate();
  void cleared();
  void hand_over();
  void finish(int exit_status);
  void let_children_go();

  // supervisor_requeue.cc: back into Slurm's queue
  void requeue_self();
  void take_road();
  void lose_job(const std::string& why);
  void leave_pending(const SlurmJob& job);
  void outlast_forgotten_run();
  std::string cause_of_requeue(const SlurmJob& job) const;

  std::string ranks_step_name() const;
  void enter(Phase phase, std::chrono::milliseconds limit);
  void record(const std::string& event, const std::string& cause, EventNote note = EventNote::none);
  void say(const std::string& text);
  std::optional<std::uint64_t> newest_commit() const;

  Slurm& slurm_;
  RunContext context_;
  SlurmJob job_;
  RankLayout layout_;
  ActiveMarker marker_;
  FinishedFile finished_;
  std::optional<HistoryWriter> log_;
  std::optional<OutputRelay> output_;
  std::optional<ControlServer> control_;
  Fd signals_;

  Phase phase_ = Phase::greeting;
  Clock::time_point deadline_;
  std::uint32_t attempt_ = 0;
  std::optional<AgentLink> agents_;
  bool agents_well_ = false;  ///< nothing is known against the agents serving the next attempt too
  bool agent_death_noted_ = false;
  bool agent_said_why_ = false;  ///< an agent, of its own failure
  std::optional<Child> ranks_;
  std::optional<Rendezvous> rendezvous_;  ///< of this attempt's ranks
  std::set<std::string> awaited_;         ///< nodes that have not answered in this phase
  std::set<std::uint32_t> joined_;
  RestoreTally restored_;
  std::uint64_t newest_step_ = 0;
  RankEnds ends_;
  bool said_unused_ = false;
  Clock::time_point last_save_record_;   ///< of a commit
  Clock::time_point last_begin_record_;  ///< of a save

  Coordinator commits_{1};
  StepChoice choice_;
  OpenSaves saves_;
  std::optional<std::uint64_t> newest_commit_;  ///< of any attempt; as found on disk at first
  std::optional<StopDecision> decision_;
  std::optional<Stop> stop_;
  bool stop_saved_ = false;  ///< the stop's own checkpoint is committed
  TimeLeft time_;
  bool time_limit_near_ = false;
  bool out_of_tries_ = false;  ///< of those that the cluster's failures get in a run
  std::uint32_t later_ = 1;    ///< how many times as late as usual the job starts again
  DirectoryOwner owner_;       ///< of the checkpoint directory, when this attempt began
  bool said_owner_unknown_ = false;
  OwnerWatch owner_watch_;
  bool owned_ = false;  ///< this run was seen to own the directory

  std::optional<OwnStop> own_stop_;  ///< while the phase is `saving`
  bool own_saved_ = false;           ///< the program's own checkpoint for the stop
  bool progressed_ = false;    ///< a step was committed in this run of the job, in any attempt
  bool end_recorded_ = false;  ///< why this run of the job ends stands in the history

  HangDetector hang_;
  StorageWatch storage_;
  GangStart gang_;
  RankFailure failure_;
  std::optional<Clock::time_point> ranks_gone_;  ///< when their srun was found to have ended
  NodePolicy nodes_;
  Clock::time_point last_loop_;
  bool hang_called_ = false;  ///< the pending fault is a hang, which may yet end by itself
  bool ever_joined_ = false;  ///< a rank joined, in any attempt
  bool hopeless_ = false;     ///< another try would end as the last one did
  /// Nodes of the ranks' step when it lost one, with sbatch --no-kill; 0: it has lost none.
  std::size_t shrunk_from_ = 0;
  std::string save_error_;  ///< the last one told; empty: saves go well
  Clock::time_point save_failed_;

  RestartBudget budget_;
  Next next_ = Next::restart;
  int escalation_ = 0;
  SlurmReach reach_;
  bool must_ask_slurm_ = false;
  bool term_came_ = false;
  bool fault_pending_ = false;
  Blame blame_ = Blame::program;
  std::string cause_;
  Clock::time_point faulted_;  ///< when the last fault was noticed
  int exit_code_ = 0;
  std::optional<int> result_;
};

}  // namespace bellows
