// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/machine.h"
#include "tests/unit/launcher/stop_ledger.h"

namespace bellows {

/// A run that a test drives: keeps what the machine's actions make of steps and files, answers what
/// is answered at once, and watches over what must never happen. Its time is the test's.
class MachineWorld {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static RunRules rules();
  /// Job 7 on nodes n1 and n2, with two GPUs on each; it runs.
  static SlurmJob job();
  explicit MachineWorld(const RunRules& how = rules(), const SlurmJob& what = job());

  RunMachine machine;
  Time now{std::chrono::hours(1)};

  // The world, as it answers.
  SlurmJob record;            ///< what slurmctld says of the job
  bool slurm_silent = false;  ///< it says nothing
  input::Surroundings around;
  std::optional<std::uint64_t> step_below;
  std::optional<std::uint32_t> fruitless_runs = 0;
  RequeueRoad::Done road{RoadEnd::moved};
  bool disk_full = false;  ///< no batch can be recorded
  bool agents_start = true;
  bool ranks_start = true;
  bool steps_are_made = true;
  Status step_signalled;               ///< what it says to a signal for a step
  std::vector<std::string> lingering;  ///< steps that slurmctld knows besides those that live

  // What came of the actions.
  bool agents = false;
  bool agents_open = false;
  bool ranks = false;       ///< their step was started and not dropped
  bool ranks_live = false;  ///< their srun
  bool own_command = false;
  int agent_starts = 0;
  int rank_starts = 0;
  std::vector<int> rank_signals;
  std::vector<int> agent_signals;
  std::vector<int> step_signals;
  std::vector<Command> commands;  ///< to the agents
  std::vector<NextRun> roads;
  std::vector<std::string> said;
  std::vector<JobEvent> history;
  std::map<std::uint64_t, std::vector<std::string>> replies;
  std::optional<std::uint32_t> planned_size;
  std::optional<std::uint64_t> planned_batch;
  std::optional<std::uint32_t> planned_batch_at;
  bool marker = true;
  std::optional<int> exit;
  StopLedger stop;
  std::string broken;  ///< the first thing that must never happen; empty: none did

  void begin();
  void feed(const Input& input);
  /// Time passes, as the machine's loop sees it; slurmctld answers unless it is silent.
  void pass(std::chrono::milliseconds time);
  /// The same until it is over or in the state, but no longer than a day.
  template <typename S>
  bool reaches() {
    return reaches([this] { return std::holds_alternative<S>(machine.state()); });
  }
  bool reaches(const std::function<bool()>& there);

  // What agents and ranks do.
  void agents_greet();
  void agents_find(std::optional<std::uint64_t> step);
  void agents_ready();
  /// All of that, and the ranks start.
  void start_ranks(std::optional<std::uint64_t> step = std::nullopt);
  void join();
  /// The ranks are at work.
  void start();
  void agent(Event event) { feed(input::AgentSays{std::move(event)}); }
  void rank(std::uint32_t number, event::Rank::State state);
  void progress(std::uint64_t step);
  /// Every rank gives its part, and the leader commits.
  void save(std::uint64_t step);
  void give_parts(std::uint64_t step);
  void commit(std::uint64_t step);
  /// All agents answer the last gate with this step.
  void answer_gate(std::uint64_t newest);
  /// All agents answer the last query: so many parts are left to write on each node.
  void answer_query(std::uint32_t unwritten = 0);
  void ranks_end(int status, const std::optional<std::string>& finished = std::nullopt);
  void ranks_killed(int signal);
  void own_command_ends(int status);
  void agents_end(int status);
  void agent_lost(const std::string& loss, const std::string& node = "");

  /// From here on everybody does what is asked: agents answer, ranks end well or when they are
  /// told to, and slurmctld answers. True: the run comes to its end.
  bool ends_in_a_kind_world();

  /// Slurm may have yet to end the ranks when their srun has gone: it was killed, or left a lost
  /// node behind.
  bool step_may_outlast_srun() const;

  bool has_said(const std::string& text) const;
  /// The last event of the history, and its cause.
  std::string last() const;
  std::string last_reply(std::uint64_t client) const;

 private:
  void carry_out(const Action& action, std::vector<Input>& answers);
  void serve_agents(const Action& action, std::vector<Input>& answers);
  void serve_ranks(const Action& action, std::vector<Input>& answers);
  void serve_slurm(const Action& action, std::vector<Input>& answers);
  void serve_people(const Action& action, std::vector<Input>& answers);
  /// Null: nothing like it.
  template <typename Body>
  const Body* last_sent() const;
  void must(bool holds, const char* what);
  void obey(const Command& command);
  void be_kind();
  std::vector<SlurmStep> steps() const;

  std::deque<Input> inbox_;
  std::size_t told_nodes_;       ///< that the job has, as slurmctld said last
  std::size_t ranks_nodes_ = 0;  ///< of the ranks' step
  bool killed_ = false;          ///< ranks or their step got SIGKILL
  bool kind_ = false;
};

}  // namespace bellows
