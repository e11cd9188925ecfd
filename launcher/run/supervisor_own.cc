// SPDX-License-Identifier: Apache-2.0
// Supervisor's dealings with programs that do not use libbellows.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/record/lost_halt.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kAskOften = 500ms;
/// Of the history, in which few stand behind a stop.
constexpr std::size_t kNewestEvents = 200;

}  // namespace

// A launcher or a node may die when the program is done but nobody has heard of it.
bool Supervisor::finished_before() {
  if (job_.restarts == 0 && attempt_ == 0) finished_.drop_older(job_.submit_time);
  auto said = finished_.found();
  if (!said && owner_.run && owner_.run->job == job_.id && !is_of_older_job(owner_, job_))
    said = finished_.found_of(*owner_.run);
  if (!said) return false;
  say("the program has finished, says " + *said);
  record("COMPLETED", "the program had said that it is finished");
  finish(kOk);
  return true;
}

// Whoever asked for it may have gone long since.
bool Supervisor::halted_before() {
  if (job_.restarts == 0 || attempt_ > 0) return false;
  auto events = read_events(context_.checkpoint_dir, job_.id, kNewestEvents);
  if (!events || !halt_was_lost(*events, job_.restarts)) return false;
  say("the launcher before this one was killed while it halted the job: halting it now");
  stop_ = Stop{kHalt, std::nullopt, 0, true};
  requeue_self();
  return true;
}

bool Supervisor::saves_by_itself() const {
  return joined_.empty() && context_.options.own.possible();
}

// What a program does by itself, nobody here can know.
std::string Supervisor::begin_of_ranks() const {
  if (auto step = newest_commit()) return fmt::format("step {}", *step);
  if (context_.options.own.possible()) return "what the program has saved";
  const bool first = job_.restarts == 0 && attempt_ == 1 && phase_ != Phase::clearing;
  return first || ever_joined_ ? "the start" : "what the program may have saved by itself";
}

// Said when it is known, and when it begins to matter.
void Supervisor::note_unused(const std::string& when) {
  if (!joined_.empty() || said_unused_ || context_.options.own.possible()) return;
  said_unused_ = true;
  say(when +
      ": without libbellows each restart is from what the program may have saved by itself; with "
      "--checkpoint-signal or --checkpoint-cmd it can be made to save, see bellows-run(1)");
}

void Supervisor::begin_own_stop() {
  const OwnCheckpoint& own = context_.options.own;
  std::string to = stop_->gpus ? " to " + counted(*stop_->gpus, "GPU") : "";
  record("CHECKPOINTING", stop_->reason + to, stop_->hold ? EventNote::halting : EventNote::none);
  answer(stop_->client, json{{"event", "stopping"}, {"step", nullptr}}.dump());
  say(fmt::format("stopping ({}): {}", stop_->reason, own.describe()));
  own_stop_.emplace(own, stop_->client != 0, Clock::now());
  enter(Phase::saving, 0ms);
}

// Slurm reaches ranks on every node, and may not answer just now: false.
bool Supervisor::signal_ranks() {
  auto steps = slurm_.steps(job_.id);
  if (!steps) {
    say(steps.error().text + "; asking again");
    return false;
  }
  for (const SlurmStep& step : *steps) {
    if (step.name != ranks_step_name()) continue;
    Status status = slurm_.signal_step(job_.id, step.id, context_.options.own.signal);
    if (status)
      own_stop_->note_signalled();
    else
      say(status.error().text + "; trying again");
  }
  return true;
}

void Supervisor::watch_own_stop() {
  if (ranks_ && own_stop_->must_signal() && !signal_ranks()) own_stop_->begin_time(Clock::now());
  if (ranks_over()) {
    const ChildExit exit = end_of_ranks();
    own_stop_->note_ranks(exit);
    if (failure_.blame(exit) == RankFailure::Blame::cluster)
      own_stop_->note_lost(failure_.cause(exit));
  }
  if (auto exit = own_stop_->poll_command(); exit && !exit->ok())
    say("the checkpoint command " + exit->to_string());
  const OwnStopEnd end = own_stop_->judge(finished_.found().has_value(), Clock::now());
  if (end == OwnStopEnd::waiting) return enter(Phase::saving, kAskOften);
  end_own_stop(end, own_stop_->trouble());
}

void Supervisor::end_own_stop(OwnStopEnd end, const std::string& trouble) {
  own_stop_.reset();
  switch (end) {
    case OwnStopEnd::finished:
      return clear(Next::complete, "the program has finished");
    case OwnStopEnd::refused:
      answer(stop_->client, json{{"event", "error"}, {"error", trouble}}.dump());
      record("PROCESSING", trouble + "; the ranks go on", EventNote::ranks_go_on);
      stop_.reset();
      marker_.plan(std::nullopt);
      return enter(Phase::running, kNoLimit);
    case OwnStopEnd::unsaved:
      say(trouble + "; the program goes on from what it has");
      break;
    default:
      say("the program has saved its own checkpoint");
      own_saved_ = true;
      record("STORING", "the program's own checkpoint: " + stop_->reason);
  }
  clear(Next::stop, stop_->reason);
}

}  // namespace bellows
