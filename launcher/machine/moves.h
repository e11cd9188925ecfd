// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/exit_status.h"
#include "launcher/machine/input.h"
#include "launcher/machine/run.h"
#include "launcher/machine/state.h"

namespace bellows {

/// The ways from state to state, each beside the state that it leaves. A State is where the run is
/// next; a Move may say that it stays. RunMachine decides which of them an input takes.

/// Something went wrong; nothing is news while steps end.
void fault(Run& run, const State& state, const std::string& cause, Blame blame,
           int exit_code = kFailed);

// beginning.cc: Looking, Greeting, Finding, Restoring
State begin_attempt(Run& run);
State surroundings_known(Run& run, const input::Surroundings& around);
Move agent_greeted(Run& run, state::Greeting& greeting, const std::string& node);
State step_found(Run& run, const event::Found& found);
Move agent_ready(Run& run, state::Restoring& restoring, const std::string& node,
                 const event::Ready& ready);
/// Agents that outlived their ranks hold the newest checkpoint in memory, and are there already.
bool keeps_agents(const Run& run);
/// What ranks would start from now, for a person. `clearing`: those of an attempt have just ended.
std::string begin_of_ranks(const Run& run, bool clearing = false);
/// Slurm says that a later run of the job has begun: this one ends.
Move give_way_to_later_run(Run& run, const SlurmJob& job);

// running.cc: Running, Judging
void ranks_started(Run& run);
Move watch_running(Run& run, state::Running& running);
void late_steps_known(Run& run, state::Running& running,
                      const Result<std::vector<SlurmStep>>& steps);
State judge_end(Run& run);
/// How the ranks ended, which are dropped.
ChildExit end_of_ranks(Run& run);
void note_progress(Run& run, const std::string& node, const event::Progress& progress,
                   bool running);
void note_rank(Run& run, const std::string& node, const event::Rank& rank);
void note_save_error(Run& run, const std::string& node, std::optional<std::uint64_t> step,
                     const Error& error);
/// Handles events about saved steps. A stop that waited for its checkpoint ends here.
/// `may_hand_over`: the run does not end in another way already.
Move note_commit(Run& run, const Event::Body& event, bool may_hand_over);

// stopping.cc: stops, and Saving
Move signal_usr1(Run& run, State& state);
/// A stop is wanted. `state`: the present one, which may take it up.
Move request_stop(Run& run, State& state, Stop stop);
Move watch_saving(Run& run, state::Saving& saving);
Move saving_steps_known(Run& run, state::Saving& saving,
                        const Result<std::vector<SlurmStep>>& steps);
/// The stop is done with, as far as it can be: whoever asked for it requeues the job.
State hand_over(Run& run);

// watching.cc: what is looked at from time to time while ranks are at work
/// Asks when it is time to, and stops before the time is over when slurmctld is silent.
Move watch_time(Run& run, State& state);
Move limits_known(Run& run, State& state, const JobLimits& limits);
void watch_nodes(Run& run, const State& state);
Move nodes_known(Run& run, State& state, const std::vector<NodeReport>& reports);

// agents.cc: what they say, and their end
/// They have no ranks of this attempt yet.
bool is_beginning(const State& state);
Move agent_said(Run& run, State& state, const Event& event);
void agent_lost(Run& run, const State& state, const input::AgentLost& lost);
Move agents_ended(Run& run, State& state, const input::AgentsEnded& ended);

// ending.cc: Draining, Clearing, Counting, Waiting, Over
/// Asks the agents what they have yet to write.
void begin_drain(Run& run);
State drain(Run& run, state::Next next);
/// Ends both steps; `next` follows.
State clear(Run& run, state::Next next, const std::string& cause);
State end_draining(Run& run, const state::Draining& draining);
Move check_clearing(Run& run, state::Clearing& clearing);
Move escalate(Run& run, state::Clearing& clearing);
Move clearing_steps_known(Run& run, state::Clearing& clearing,
                          const Result<std::vector<SlurmStep>>& steps);
State fruitless_runs_known(Run& run, std::optional<std::uint32_t> runs);
State finish(Run& run, int exit_status);

// leaving.cc: what Slurm says about the job, HandedOver, Requeueing, Forgotten
Move job_known(Run& run, State& state, const SlurmJob& job);
State requeue(Run& run);
State road_walked(Run& run, const RequeueRoad::Done& done);
/// Another run took the checkpoint directory; nothing: it is still ours.
Move watch_owner(Run& run, const std::string& owner);

}  // namespace bellows
