// SPDX-License-Identifier: Apache-2.0
// Supervisor's eyes: what goes wrong while ranks run, and whose fault it is.
#include <fmt/core.h>

#include <algorithm>

#include "launcher/base/exit_status.h"
#include "launcher/run/supervisor.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// The loop comes round every second: after so long nobody ran, as in a suspended job.
constexpr auto kPaused = 5s;
/// A rank that dies so soon after a failed save died of it.
constexpr auto kDiedOfSave = 30s;
/// Their output may have nobody to take it.
constexpr auto kLastWordsWithin = 500ms;
/// The relay drops what nobody takes after 10 s on each of both streams, and then reads on.
constexpr auto kDoubtsWithin = 25s;

}  // namespace

void Supervisor::begin_watch() {
  const auto now = Clock::now();
  hang_.begin(now);
  storage_.begin(now);
  hang_called_ = false;
  owner_watch_.begin();
  gang_.begin(layout_.ranks(), now);
  failure_ = RankFailure(layout_.ranks());
  ranks_gone_.reset();
}

// A job that Slurm suspends stops with its launcher: no deadline may pass meanwhile.
void Supervisor::note_pause() {
  const auto now = Clock::now();
  const auto gap = now - last_loop_;
  if (last_loop_ != Clock::time_point() && gap > kPaused) {
    deadline_ += gap;
    if (own_stop_) own_stop_->excuse(gap);
    gang_.excuse(gap);
    hang_.excuse(now);
    storage_.excuse(gap);
    time_.note_pause(seconds_now());
    saves_.note_news(now);
  }
  last_loop_ = now;
}

void Supervisor::note_rank(const Event& event) {
  if (event.state == "joined") {
    joined_.insert(event.rank);
    gang_.joined(event.rank);
    ever_joined_ = true;
  }
  ends_.note(event);
  if (event.state == "lost") {
    failure_.lost(event.rank, event.node);
    hang_.note_death();
  }
}

void Supervisor::note_progress(const Event& event) {
  newest_step_ = std::max(newest_step_, event.max_step.value_or(0));
  if (phase_ == Phase::running) {
    hang_.note(event, Clock::now());
    storage_.note(event, Clock::now());
  }
  if (fault_pending_ && hang_called_ && hang_.recovered()) drop_hang("it goes on by itself");
}

void Supervisor::drop_hang(const std::string& why) {
  say("no hang after all: " + why);
  fault_pending_ = hang_called_ = false;
  must_ask_slurm_ = term_came_;
  hang_.excuse(Clock::now());
}

void Supervisor::watch() {
  if (phase_ != Phase::running || fault_pending_ || ranks_gone_) return;
  const auto now = Clock::now();
  if (auto what = hang_.check(now)) {
    // One that says nothing would not answer the next attempt either.
    if (hang_.silent(now)) agents_well_ = false;
    fault(*what, Blame::program, kFailed);
    hang_called_ = fault_pending_;
  }
  if (auto why = failure_.no_start(); !why.empty()) fault(why, Blame::cluster, kFailed);
  if (auto late = gang_.check(now); late && !fault_pending_) late_start(*late);
  if (auto what = storage_.check(now, time_.usual_save())) {
    say(*what);
    record("PROCESSING", *what);
  }
}

// A program that does not use libbellows never joins. Of it no more is known than whether Slurm has
// made its step; srun itself ends a step that a node does not start.
void Supervisor::late_start(const GangStart::Late& late) {
  if (!late.nobody) return fault(late.text, Blame::program, kFailed);
  auto steps = slurm_.steps(job_.id);
  if (!steps) {
    gang_.ask_again(Clock::now());
    return say("whether the ranks have started is not known: " + steps.error().text +
               "; asking again");
  }
  const bool made = std::any_of(steps->begin(), steps->end(), [this](const SlurmStep& step) {
    return step.name == ranks_step_name();
  });
  if (!made)
    return fault(fmt::format("Slurm did not start the step of the ranks within {} s",
                             context_.options.start_limit),
                 Blame::cluster, kFailed);
  say(fmt::format("no rank has called bellows_init within {} s; as far as Slurm knows, all run",
                  context_.options.start_limit));
}

// A file system that fails tells every rank of every step, each with a path of its own: one line
// for each different trouble.
void Supervisor::note_save_error(const Event& event) {
  if (event.error_kind == ErrorKind::io) save_failed_ = Clock::now();
  const std::size_t reason = event.error.rfind(": ");
  const std::string why =
      reason == std::string::npos ? event.error : event.error.substr(reason + 2);
  if (why == save_error_) return;
  save_error_ = why;
  const std::string text =
      fmt::format("step {} could not be saved: {}", event.step.value_or(0), event.error);
  say(fmt::format("on {}: {}", event.node, text));
  record("PROCESSING", text);
}

// The history lies beside the checkpoints: where it can be written again, saves may go well too.
// One that comes and goes must not use up all tries.
void Supervisor::heed_history() {
  auto news = log_->news();
  if (!news) return;
  say(*news);
  const bool few = budget_.failures_of(Blame::storage) < RestartBudget::kMostOfStorage / 2;
  if (phase_ == Phase::waiting && blame_ == Blame::storage && few && log_->well())
    deadline_ = Clock::now();
}

void Supervisor::agent_failed(const Event& event) {
  const bool saving = event.cmd == "commit";
  if (saving) return note_save_error(event);
  say(fmt::format("agent on {}: {}", event.node, event.error));
  // An old checkpoint that could not be removed costs room and no work.
  if (event.cmd == "retention") return;
  agents_well_ = false;
  agent_said_why_ = true;
  // Another run owns the directory now: which of the two Slurm means, it says when it is asked.
  const Blame blame = event.error_kind == ErrorKind::io     ? Blame::storage
                      : event.error_kind == ErrorKind::busy ? Blame::cluster
                                                            : Blame::program;
  fault("an agent failed: " + event.error, blame, kFailed);
}

void Supervisor::read_rank_errors() {
  const OutputRelay::Errors errors = output_->take_errors();
  for (const std::string& line : errors.ranks) failure_.take_words(line);
  for (const std::string& line : errors.slurm) failure_.take_line(line);
}

// Why they ended stands in the last lines that srun wrote.
void Supervisor::drop_ranks() {
  if (!ranks_) return;
  if (ranks_->poll_exit()) output_->settle(kLastWordsWithin);
  read_rank_errors();
  ranks_.reset();
}

// A status 0 says nothing before srun's last words are read; another one says enough.
bool Supervisor::ranks_over() {
  if (!ranks_ || !ranks_->poll_exit()) return false;
  const auto now = Clock::now();
  const bool first = !ranks_gone_;
  if (first) ranks_gone_ = now;
  if (output_->settle(first ? kLastWordsWithin : 0ms) || !ranks_->poll_exit()->ok()) return true;
  if (first) say("waiting for what srun has yet to say: the output of this job is not taken");
  return now - *ranks_gone_ > kDoubtsWithin;
}

ChildExit Supervisor::end_of_ranks() {
  const ChildExit exit = *ranks_->poll_exit();
  drop_ranks();
  // The agents' srun may have been told of a node that the ranks' did not wait for.
  if (agents_ && ends_.finished() < layout_.world()) failure_.node_lost(agents_->lost_node());
  return failure_.true_exit(exit);
}

void Supervisor::ranks_failed(const ChildExit& exit) {
  std::string cause = failure_.cause(exit);
  switch (failure_.blame(exit)) {
    case RankFailure::Blame::cluster:
      return fault(cause, Blame::cluster, exit.code());
    case RankFailure::Blame::missing:
      // One that ran before may be back in a moment, as on a node that has just booted.
      hopeless_ = !ever_joined_ && attempt_ == 1 && job_.restarts == 0 && !newest_commit();
      break;
    case RankFailure::Blame::program:
      return rank_died(cause, exit.code());
  }
  fault(cause, Blame::program, exit.code());
}

void Supervisor::rank_died(const std::string& cause, int exit_code) {
  const bool save_failed = !save_error_.empty() && Clock::now() - save_failed_ < kDiedOfSave;
  if (!save_failed) return fault(cause, Blame::program, exit_code);
  fault(fmt::format("{}, after a save had failed: {}", cause, save_error_), Blame::storage,
        exit_code);
}

}  // namespace bellows
