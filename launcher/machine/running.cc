// SPDX-License-Identifier: Apache-2.0
// What goes wrong while ranks run and whose fault it is, what they commit, and how they ended.
#include <fmt/core.h>

#include <algorithm>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kNoLimit = std::chrono::hours(24 * 365);
constexpr auto kRecordSavesEvery = 1s;
/// A rank that dies this soon after a failed save is assumed to have died because of it.
constexpr auto kDiedOfSave = 30s;

void note_death(Run& run, const std::string& cause, int exit_code) {
  const RunProgress& progress = run.progress;
  if (progress.save_error.empty() || run.now - progress.save_failed >= kDiedOfSave)
    return run.note_fault(cause, Blame::program, exit_code);
  run.note_fault(fmt::format("{}, after a save had failed: {}", cause, progress.save_error),
                 Blame::storage, exit_code);
}

void ranks_failed(Run& run, const ChildExit& exit) {
  const std::string cause = run.failure.cause(exit);
  switch (run.failure.culprit(exit)) {
    case RankFailure::Culprit::cluster:
      return run.note_fault(cause, Blame::cluster, exit.code());
    case RankFailure::Culprit::missing:
      // A program that ran before may be back in a moment, as on a node that has just booted.
      run.fault.hopeless = !run.progress.ever_joined && run.attempt.number == 1 &&
                           run.job.restarts == 0 && !run.progress.newest_commit;
      return run.note_fault(cause, Blame::program, exit.code());
    case RankFailure::Culprit::program:
      return note_death(run, cause, exit.code());
  }
}

Move ranks_ended(Run& run) {
  const bool told = run.ranks.finished.has_value();
  const ChildExit exit = end_of_ranks(run);
  run.fault.hang = false;
  if (exit.ok()) run.fault.pending = false;
  if (told) {
    run.fault.pending = false;
    return clear(run, state::Next::complete, "the program had reported that it was finished");
  }
  if (!exit.ok()) {
    if (run.failure.no_start().empty()) run.note_unused("no rank had called bellows_init");
    ranks_failed(run, exit);
    return std::nullopt;
  }
  const bool unused = run.attempt.joined.empty();
  if (unused && !run.told.unused && !run.rules.own.possible()) {
    run.told.unused = true;
    run.say("the program did not use libbellows: it had no checkpoint to continue from");
  }
  if (unused && !run.stop) return clear(run, state::Next::complete, "the program has finished");
  if (!run.agents.there) return judge_end(run);
  begin_drain(run);
  return state::Judging{run.now + 200ms};
}

void start_is_late(Run& run, state::Running& running, const GangStart::Late& late) {
  if (!late.nobody) return run.note_fault(late.text, Blame::program, kFailed);
  running.late = true;
  run.act(action::LookAtSteps{});
}

void watch(Run& run, state::Running& running) {
  if (run.fault.pending || !run.ranks.there || run.ranks.gone) return;
  if (auto what = run.hang.check(run.now)) {
    // An agent that says nothing would not answer the next attempt either.
    if (run.hang.silent(run.now)) run.agents.well = false;
    run.note_fault(*what, Blame::program, kFailed);
    run.fault.hang = true;
  }
  if (auto why = run.failure.no_start(); !why.empty()) run.note_fault(why, Blame::cluster, kFailed);
  if (auto late = run.gang.check(run.now); late && !run.fault.pending)
    start_is_late(run, running, *late);
  if (auto what = run.storage.check(run.now, run.time.usual_save())) {
    run.say(*what);
    run.record("PROCESSING", *what);
  }
}

/// What was committed is on disk, whatever happens.
Move step_committed(Run& run, std::uint64_t step, bool recordable, bool may_hand_over) {
  RunProgress& progress = run.progress;
  progress.newest_commit = step;
  run.choice.note_good(step);
  progress.newest_step = std::max(progress.newest_step, step);
  progress.committed = true;
  if (!progress.save_error.empty())
    run.say(fmt::format("step {} was saved: saves work again", step));
  progress.save_error.clear();
  const auto& decision = run.attempt.decision;
  if (may_hand_over && run.stop && decision && decision->step() && step >= *decision->step()) {
    run.stop->saved = true;
    run.record("STORING", fmt::format("committed step {}: {}", step, run.stop->reason),
               EventNote::committed);
    return hand_over(run);
  }
  if (recordable) {
    run.record("PROCESSING", fmt::format("committed step {}", step), EventNote::committed);
    run.told.commit = run.now;
  }
  return std::nullopt;
}

}  // namespace

void ranks_started(Run& run) {
  run.hang.begin(run.now);
  run.storage.begin(run.now);
  run.fault.hang = false;
  run.gang.begin(run.layout.ranks(), run.now);
  run.failure = RankFailure(run.layout.ranks());
  const std::string from = "from " + begin_of_ranks(run);
  run.say(fmt::format("{} start{} {}", counted(run.layout.world(), "rank"),
                      run.layout.world() == 1 ? "s" : "", from));
  run.record("PROCESSING", from);
}

Move watch_running(Run& run, state::Running& running) {
  // Whether it has ended by itself or was told to by Slurm is for Slurm to say.
  const bool slurm_first = run.doubts.ask_job && !run.fault.pending && run.saves_by_itself();
  if (run.ranks.end && !slurm_first) return ranks_ended(run);
  watch(run, running);
  return std::nullopt;
}

// A program that does not use libbellows never joins. All that is known about it is whether Slurm
// has created its step; srun itself ends a step that a node does not start.
void late_steps_known(Run& run, state::Running& running,
                      const Result<std::vector<SlurmStep>>& steps) {
  if (!std::exchange(running.late, false)) return;
  if (!steps) {
    run.gang.ask_again(run.now);
    return run.say("whether the ranks have started is not known: " + steps.error().text +
                   "; asking again");
  }
  const std::string name = run.ranks_step_name();
  const bool made = std::any_of(steps->begin(), steps->end(),
                                [&name](const SlurmStep& step) { return step.name == name; });
  const auto limit = run.rules.start_limit.count();
  if (!made)
    return run.note_fault(
        fmt::format("Slurm did not start the step of the ranks within {} s", limit), Blame::cluster,
        kFailed);
  run.say(fmt::format(
      "no rank has called bellows_init within {} s; as far as Slurm knows, all are running",
      limit));
}

State judge_end(Run& run) {
  const RankEnds& ends = run.attempt.ends;
  const bool finished = ends.finished() >= run.layout.world() || run.attempt.joined.empty();
  const std::string deaths = ends.deaths();
  if (finished || (!run.stop && deaths.empty()))
    return clear(run, state::Next::complete, "the program has finished");
  if (!run.stop) {
    run.agents.well &= run.saves.all_answered(run.layout.nodes().size());
    note_death(run, deaths, kFailed);
    return state::Running{run.now + kNoLimit};
  }
  run.say("the ranks ended at the stop without a checkpoint of it");
  return clear(run, state::Next::stop, run.stop->reason);
}

ChildExit end_of_ranks(Run& run) {
  const ChildExit exit = run.ranks.end.value_or(ChildExit{});
  run.drop_ranks();
  // The agents' srun may have been told of a node that the ranks' did not wait for.
  if (run.agents.there && run.attempt.ends.finished() < run.layout.world())
    run.failure.node_lost(run.agents.lost_node);
  return run.failure.true_exit(exit);
}

void note_progress(Run& run, const std::string& node, const event::Progress& progress,
                   bool running) {
  run.progress.newest_step = std::max(run.progress.newest_step, progress.max_step.value_or(0));
  if (progress.batch > 0) run.progress.batch = progress.batch;
  if (progress.noise_scale > 0) run.progress.noise_scale = progress.noise_scale;
  if (running) {
    run.hang.note(node, progress, run.now);
    run.storage.note(node, progress, run.now);
  }
  if (run.fault.pending && run.fault.hang && run.hang.recovered())
    run.drop_hang("the ranks continue by themselves");
  run.time.note_step(run.progress.newest_step, run.seconds());
}

void note_rank(Run& run, const std::string& node, const event::Rank& rank) {
  if (rank.state == event::Rank::State::joined) {
    run.attempt.joined.insert(rank.rank);
    run.gang.joined(rank.rank);
    run.progress.ever_joined = true;
  }
  run.attempt.ends.note(node, rank);
  if (rank.state == event::Rank::State::lost) {
    run.failure.lost(rank.rank, node);
    run.hang.note_death();
  }
}

// A file system that fails tells every rank of every step, each with a path of its own: one line
// for each different trouble.
void note_save_error(Run& run, const std::string& node, std::optional<std::uint64_t> step,
                     const Error& error) {
  if (error.kind == ErrorKind::io) run.progress.save_failed = run.now;
  const std::size_t reason = error.text.rfind(": ");
  const std::string why = reason == std::string::npos ? error.text : error.text.substr(reason + 2);
  if (why == run.progress.save_error) return;
  run.progress.save_error = why;
  const std::string text =
      fmt::format("step {} could not be saved: {}", step.value_or(0), error.text);
  run.say(fmt::format("on {}: {}", node, text));
  run.record("PROCESSING", text);
}

Move note_commit(Run& run, const Event::Body& event, bool may_hand_over) {
  if (!std::holds_alternative<event::Rank>(event)) run.saves.note_news(run.now);
  run.time.note_save(event, run.seconds());
  for (const Command& command : run.attempt.commits.handle(event)) {
    run.send(command);
    if (const auto* done = std::get_if<command::Committed>(&command.body))
      run.saves.end(done->step);
    if (const auto* failed = std::get_if<command::Failed>(&command.body))
      run.saves.end(failed->step);
  }
  const bool recordable = run.now - run.told.commit >= kRecordSavesEvery || run.stop;
  // If every save fails, there is no commit from which to measure time.
  const bool begins =
      recordable && (run.now - run.told.save_begun >= kRecordSavesEvery || run.stop);
  // A part may come after its step has failed; nothing would ever end that save.
  const auto* shard = std::get_if<event::Shard>(&event);
  const bool opens = shard && run.attempt.commits.is_pending(shard->step);
  if (opens && run.saves.begin(shard->step) && begins) {
    run.record("CHECKPOINTING", fmt::format("step {}", shard->step), EventNote::saving);
    run.told.save_begun = run.now;
  }
  const auto* committed = std::get_if<event::Committed>(&event);
  if (!committed) return std::nullopt;
  if (const std::string complaint = run.time.complaint(run.rules.own); !complaint.empty())
    run.say(complaint);
  return step_committed(run, committed->step, recordable, may_hand_over);
}

}  // namespace bellows
