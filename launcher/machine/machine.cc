// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"
#include "launcher/record/lost_halt.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kNoLimit = std::chrono::hours(24 * 365);
constexpr auto kJoinsWithin = 30s;
constexpr auto kLookOften = 200ms;
constexpr std::uint64_t kMostGpus = 4096;

template <typename S>
bool is(const State& state) {
  return std::holds_alternative<S>(state);
}

/// When a state acts by itself; null: at the answer to an action only.
template <typename S>
auto until_of(S& state) {
  using Until = std::conditional_t<std::is_const_v<S>, const state::Time, state::Time>;
  return std::visit(
      [](auto& is) -> Until* {
        if constexpr (requires { is.until; })
          return &is.until;
        else
          return nullptr;
      },
      state);
}

// How an input changes a run: one overload for each kind.

Move on(Run& run, State& state, const input::Surroundings& around) {
  return is<state::Looking>(state) ? surroundings_known(run, around) : Move();
}

Move on(Run& run, State& state, const input::AgentsNotStarted& failure) {
  run.agents = {};
  fault(run, state, failure.text, Blame::cluster);
  return std::nullopt;
}

Move on(Run& run, State& state, const input::AgentSays& said) {
  return agent_said(run, state, said.event);
}

Move on(Run& run, State& state, const input::AgentLost& lost) {
  agent_lost(run, state, lost);
  return std::nullopt;
}

Move on(Run& run, State& state, const input::AgentsEnded& ended) {
  return agents_ended(run, state, ended);
}

Move on(Run& run, State& state, const input::RanksStarted&) {
  if (run.ranks.there && is<state::Running>(state)) ranks_started(run);
  return std::nullopt;
}

Move on(Run& run, State& state, const input::RanksNotStarted& failure) {
  run.ranks = {};
  fault(run, state, failure.text, Blame::program);
  return std::nullopt;
}

Move on(Run& run, State&, const input::AgentsClosed&) {
  run.agents.open = false;
  return std::nullopt;
}

Move on(Run& run, State&, const input::RankWords& words) {
  run.failure.take_words(words.line);
  return std::nullopt;
}

Move on(Run& run, State&, const input::SrunLine& line) {
  run.failure.take_line(line.line);
  return std::nullopt;
}

Move on(Run& run, State& state, const input::RanksGone&) {
  run.ranks.gone = run.ranks.there;
  auto* clearing = std::get_if<state::Clearing>(&state);
  return clearing ? check_clearing(run, *clearing) : Move();
}

Move on(Run& run, State& state, const input::RanksEnded& ended) {
  if (!run.ranks.there) return std::nullopt;
  run.ranks.gone = true;
  run.ranks.end = ended.exit;
  run.ranks.finished = ended.finished;
  if (auto* running = std::get_if<state::Running>(&state)) return watch_running(run, *running);
  // Saving: the checkpoint command may have ended too, so the next tick judges both.
  if (auto* clearing = std::get_if<state::Clearing>(&state)) return check_clearing(run, *clearing);
  if (is<state::HandedOver>(state)) {
    (void)end_of_ranks(run);
    run.dismiss_agents();
  }
  return std::nullopt;
}

Move on(Run& run, State& state, const input::OwnCommandEnded& ended) {
  auto* saving = std::get_if<state::Saving>(&state);
  if (!saving) return std::nullopt;
  if (!ended.exit.ok()) run.say("the checkpoint command " + ended.exit.to_string());
  saving->own.note_command(ended.exit);
  saving->own.note_finished(ended.finished.has_value());
  return std::nullopt;
}

Move on(Run& run, State&, const input::StatusRequest& request) {
  const nlohmann::json reply = {{"event", "status"},
                                {"world", run.layout.world()},
                                {"gpus", run.layout.gpus()},
                                {"step", run.progress.newest_step},
                                {"stopping", run.stop.has_value()}};
  run.reply(request.client, reply.dump());
  return std::nullopt;
}

Move on(Run& run, State& state, const input::StopRequest& request) {
  Stop stop{.reason = request.hold      ? kHalt
                      : request.planned ? "resize by bellowsd"
                                        : "resize",
            .client = request.client,
            .hold = request.hold,
            .from_scratch = request.from_scratch,
            .planned = request.planned};
  if (request.gpus) {
    const auto& contract = run.rules.contract;
    const auto size = static_cast<std::uint32_t>(std::min(*request.gpus, kMostGpus + 1));
    if (size == 0 || size > kMostGpus || (contract && !contract->gpus.contains(size))) {
      run.refuse(request.client, "the job may not hold that many GPUs");
      return std::nullopt;
    }
    stop.gpus = size;
  }
  if (request.batch) {
    const auto& contract = run.rules.contract;
    if (!contract || !contract->batch || !contract->batch->contains(*request.batch)) {
      run.refuse(request.client, "the job may not use that batch");
      return std::nullopt;
    }
    stop.batch = request.batch;
  }
  return request_stop(run, state, std::move(stop));
}

Move on(Run& run, State&, const input::BatchNotRecorded& failure) {
  run.say(failure.text + "; the job may continue with its former batch");
  if (run.stop) run.stop->batch.reset();
  return std::nullopt;
}

Move on(Run& run, State&, const input::Term&) {
  run.doubts.term_came = run.doubts.ask_job = true;
  return std::nullopt;
}

Move on(Run& run, State& state, const input::Usr1&) { return signal_usr1(run, state); }

Move on(Run& run, State& state, const input::JobLook& look) {
  if (!run.doubts.ask_job || !until_of(state)) return std::nullopt;
  if (!look.job && look.job.error().kind != ErrorKind::not_found) {
    run.say(look.job.error().text + "; asking again");
    return std::nullopt;
  }
  run.doubts.ask_job = false;
  if (!look.job && is<state::Forgotten>(state)) return std::nullopt;
  return look.job ? job_known(run, state, *look.job) : finish(run, kFailed);
}

Move on(Run& run, State& state, const input::StepsLook& look) {
  if (auto* running = std::get_if<state::Running>(&state))
    late_steps_known(run, *running, look.steps);
  if (auto* saving = std::get_if<state::Saving>(&state))
    return saving_steps_known(run, *saving, look.steps);
  if (auto* clearing = std::get_if<state::Clearing>(&state))
    return clearing_steps_known(run, *clearing, look.steps);
  return std::nullopt;
}

Move on(Run& run, State& state, const input::StepSignalled& signalled) {
  auto* saving = std::get_if<state::Saving>(&state);
  if (!signalled.status)
    run.say(signalled.status.error().text + (saving ? "; trying again" : ""));
  else if (saving)
    saving->own.note_signalled();
  return std::nullopt;
}

Move on(Run& run, State& state, const input::Limits& limits) {
  run.time.note_answer(limits.limits, run.seconds());
  return limits_known(run, state, limits.limits);
}

Move on(Run& run, State& state, const input::Nodes& nodes) {
  return nodes_known(run, state, nodes.reports);
}

Move on(Run& run, State& state, const input::Owner& owner) {
  const bool at_work = is<state::Running>(state) || is<state::Saving>(state);
  return at_work ? watch_owner(run, owner.attempt) : Move();
}

// The history is beside the checkpoints: if it can be written again, saves may succeed too.
// A fault that comes and goes must not use up all tries.
Move on(Run& run, State& state, const input::HistoryNews& news) {
  run.say(news.text);
  const bool few = run.budget.failures_of(Blame::storage) < RestartBudget::kMostOfStorage / 2;
  auto* waiting = std::get_if<state::Waiting>(&state);
  if (waiting && run.fault.blame == Blame::storage && few && news.well) waiting->until = run.now;
  return std::nullopt;
}

Move on(Run& run, State&, const input::StepOnDisk& disk) {
  run.progress.newest_commit = disk.step;
  return std::nullopt;
}

Move on(Run& run, State& state, const input::FruitlessRuns& known) {
  return is<state::Counting>(state) ? fruitless_runs_known(run, known.runs) : Move();
}

Move on(Run& run, State& state, const input::RoadDone& road) {
  return is<state::Requeueing>(state) ? road_walked(run, road.done) : Move();
}

// A job that Slurm suspends stops with its launcher.
Move on(Run& run, State& state, const input::Paused& pause) {
  if (state::Time* until = until_of(state)) *until += pause.gap;
  if (auto* saving = std::get_if<state::Saving>(&state)) saving->own.excuse(pause.gap);
  run.gang.excuse(pause.gap);
  run.hang.excuse(run.now);
  run.storage.excuse(pause.gap);
  run.time.note_pause(run.seconds());
  run.saves.note_news(run.now);
  return std::nullopt;
}

// What each state does by itself as time goes by.

/// Acts as soon as there is news, instead of waiting for a deadline to pass.
bool has_drained(Run& run, state::Time& until) {
  if (run.drained()) return true;
  if (run.now >= until) until = run.now + kLookOften;
  return false;
}

Move tick(Run& run, state::Running& running) {
  if (auto move = watch_running(run, running)) return move;
  if (run.now < running.until) return std::nullopt;
  run.note_unused(fmt::format("no rank has called bellows_init within {} s", kJoinsWithin.count()));
  running.until = run.now + kNoLimit;
  return std::nullopt;
}

Move tick(Run& run, state::Greeting& greeting) {
  if (run.now < greeting.until) return std::nullopt;
  run.agents.well = false;
  run.note_fault(fmt::format("no answer from the agents on {}", fmt::join(greeting.awaited, ",")),
                 Blame::cluster, kFailed);
  return std::nullopt;
}

template <typename S>
Move checkpoint_is_late(Run& run, const S& state) {
  if (run.now < state.until) return std::nullopt;
  run.agents.well = false;
  run.note_fault("the agents did not get the checkpoint ready in time", Blame::storage, kFailed);
  return std::nullopt;
}

Move tick(Run& run, state::Finding& finding) { return checkpoint_is_late(run, finding); }

Move tick(Run& run, state::Restoring& restoring) { return checkpoint_is_late(run, restoring); }

Move tick(Run& run, state::Saving& saving) { return watch_saving(run, saving); }

Move tick(Run& run, state::Judging& judging) {
  return has_drained(run, judging.until) ? judge_end(run) : Move();
}

Move tick(Run& run, state::Draining& draining) {
  return has_drained(run, draining.until) ? end_draining(run, draining) : Move();
}

Move tick(Run& run, state::Clearing& clearing) {
  if (auto move = check_clearing(run, clearing)) return move;
  return run.now < clearing.until ? Move() : escalate(run, clearing);
}

Move tick(Run& run, state::Waiting& waiting) {
  return run.now < waiting.until ? Move() : begin_attempt(run);
}

Move tick(Run& run, state::HandedOver& handed) {
  if (run.now < handed.until) return std::nullopt;
  run.say("nobody requeued the job after the stop: doing it now");
  return requeue(run);
}

Move tick(Run& run, state::Forgotten& forgotten) {
  return run.now < forgotten.until ? Move() : finish(run, kOk);
}

/// Looking, Counting, Requeueing, Over.
template <typename S>
Move tick(Run&, S&) {
  return std::nullopt;
}

Move on(Run& run, State& state, const input::Tick&) {
  const auto go = [&run, &state](Move move) {
    if (move) state = std::move(*move);
    return until_of(state) != nullptr;
  };
  // The deadline of a state that has just begun is not over.
  if (!go(std::visit([&run](auto& is) { return tick(run, is); }, state))) return std::nullopt;
  watch_nodes(run, state);
  return watch_time(run, state);
}

}  // namespace

void fault(Run& run, const State& state, const std::string& cause, Blame blame, int exit_code) {
  if (is_beginning(state) || is<state::Running>(state) || is<state::HandedOver>(state))
    run.note_fault(cause, blame, exit_code);
}

RunMachine::RunMachine(RunRules rules, SlurmJob job, RankLayout layout,
                       std::optional<std::uint64_t> on_disk)
    : run_(std::move(rules), std::move(job), std::move(layout)), state_(state::Looking{}) {
  run_.progress.newest_commit = on_disk;
}

void RunMachine::begin(Clock::time_point now) {
  run_.now = now;
  const SlurmJob& job = run_.job;
  run_.act(action::Record{{static_cast<double>(job.times.submit),
                           job.id,
                           job.restarts,
                           0,
                           "QUEUED",
                           job.restarts == 0 ? "submitted" : "requeued",
                           run_.layout.gpus(),
                           {}}});
  run_.say(fmt::format("job {} holds {} on {}: {}; checkpoints in {}", job.id,
                       counted(run_.layout.gpus(), "GPU"), fmt::join(run_.layout.nodes(), ","),
                       counted(run_.layout.world(), "rank"), run_.rules.checkpoint_dir));
  state_ = begin_attempt(run_);
}

void RunMachine::take(const Input& input, Clock::time_point now) {
  if (is<state::Over>(state_)) return;
  run_.now = now;
  auto move = std::visit([this](const auto& what) { return on(run_, state_, what); }, input);
  if (move) state_ = std::move(*move);
}

std::vector<Action> RunMachine::actions() { return std::exchange(run_.actions, {}); }

std::optional<int> RunMachine::status() const {
  const auto* over = std::get_if<state::Over>(&state_);
  return over ? std::optional(over->status) : std::nullopt;
}

RunMachine::Wanted RunMachine::wanted() const {
  Wanted wanted{.tick = run_.now + 1s};
  const state::Time* until = until_of(state_);
  if (until) wanted.tick = std::min(wanted.tick, *until);
  wanted.job = run_.doubts.ask_job && until;
  wanted.owner = is<state::Running>(state_) || is<state::Saving>(state_);
  wanted.ranks_end = wanted.owner || is<state::HandedOver>(state_);
  // A state that waits for Slurm's answer has no deadline of its own.
  if (wanted.job) wanted.tick = run_.now + 500ms;
  if (is<state::Clearing>(state_) && run_.agent_lost())
    wanted.tick = std::min(wanted.tick, run_.now + kLookOften);
  return wanted;
}

}  // namespace bellows
