// SPDX-License-Identifier: Apache-2.0
// The way of an attempt to the start of its ranks: whose directory it is, agents, checkpoint.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "launcher/base/exit_status.h"
#include "launcher/machine/moves.h"
#include "launcher/record/lost_halt.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kAskOwnerEvery = 1s;
constexpr auto kAgentsMustGreet = 60s;
constexpr auto kVerifyAtMost = 2h;
constexpr auto kJoinsWithin = 30s;

// Jobs that share a directory would continue from each other's checkpoints, and so would two runs
// of one job.
Move give_way_to_owner(Run& run, const input::Surroundings& around) {
  run.owner.before = around.owner;
  if (!around.owner_job) return std::nullopt;
  const std::uint32_t owner = around.owner.run ? around.owner.run->job : 0;
  switch (claim_on(*around.owner_job, run.job)) {
    case Claim::free:
      return std::nullopt;
    case Claim::late:
      return give_way_to_later_run(run, **around.owner_job);
    case Claim::unknown:
      if (!std::exchange(run.owner.said_unknown, true))
        run.say(fmt::format("{} belongs to job {}, which may not be over: {}; asking again",
                            run.rules.checkpoint_dir, owner, around.owner_job->error().text));
      return state::Waiting{run.now + kAskOwnerEvery};
    case Claim::taken:
      break;
  }
  const std::string cause = fmt::format(
      "the checkpoint directory {} belongs to job {}, which is not over; give each job "
      "its own with --checkpoint-dir",
      run.rules.checkpoint_dir, owner);
  run.record("FAILED", cause);
  run.say(cause);
  return finish(run, kRefused);
}

// A launcher or a node may die after the program has finished, before anyone was told.
Move finished_before(Run& run, const input::Surroundings& around) {
  auto said = around.finished;
  const auto& owner = around.owner;
  if (!said && owner.run && owner.run->job == run.job.id && !is_of_older_job(owner, run.job))
    said = around.finished_of_owner;
  if (!said) return std::nullopt;
  run.say("the program has finished, according to " + *said);
  run.record("COMPLETED", "the program had reported that it was finished");
  return finish(run, kOk);
}

// The client that asked for it may have left long ago.
Move halted_before(Run& run, const input::Surroundings& around) {
  if (run.job.restarts == 0 || run.attempt.number > 0 || !around.halt_was_lost) return std::nullopt;
  run.say("the previous launcher was killed while it halted the job: halting it now");
  run.stop = Stop{.reason = kHalt, .hold = true};
  return requeue(run);
}

State start_agents(Run& run) {
  run.drop_agents();
  run.agents.there = run.agents.open = run.agents.well = true;
  run.agents.nodes = run.layout.nodes();
  run.act(action::StartAgents{run.layout, fmt::format("bellows-agent-{}", run.attempt.number)});
  return state::Greeting{run.now + kAgentsMustGreet,
                         {run.agents.nodes.begin(), run.agents.nodes.end()}};
}

State say_hello(Run& run) {
  command::Hello hello;
  hello.dir = run.rules.checkpoint_dir;
  hello.base = run.rules.trusted_base;
  hello.access = run.rules.access;
  hello.world = run.layout.world();
  hello.ranks = run.layout.ranks();
  hello.attempt = run.attempt_name();
  hello.replaces = run.owner.before.attempt;
  hello.leader = run.layout.nodes().front();
  hello.keep = run.rules.keep;
  hello.keep_every = run.rules.keep_every;
  run.send({hello});
  run.send({run.choice.find(), hello.leader});
  return state::Finding{run.now + kVerifyAtMost};
}

State start_attempt(Run& run) {
  run.drop_ranks();
  const std::uint32_t number = run.attempt.number + 1;
  run.attempt = Attempt{.number = number, .commits = Coordinator(run.layout.world())};
  run.time.begin_attempt();
  run.saves.begin_attempt();
  run.fault.pending = false;
  run.fault.exit_code = 0;
  run.record("DEPLOYING", run.cause);
  return keeps_agents(run) ? say_hello(run) : start_agents(run);
}

State start_ranks(Run& run, const std::optional<Rendezvous>& rendezvous) {
  run.ranks.there = true;
  run.act(action::StartRanks{run.layout, run.attempt.number, run.ranks_step_name(), rendezvous});
  return state::Running{run.now + kJoinsWithin};
}

}  // namespace

State begin_attempt(Run& run) {
  run.act(action::LookAround{.first = run.attempt.number == 0});
  return state::Looking{};
}

State surroundings_known(Run& run, const input::Surroundings& around) {
  if (auto away = give_way_to_owner(run, around)) return *away;
  if (auto done = finished_before(run, around)) return *done;
  if (auto halted = halted_before(run, around)) return *halted;
  return start_attempt(run);
}

// As on a node that was cut off, or when the answer to a requeue was lost: a later run has all that
// was committed, and is not to be touched.
Move give_way_to_later_run(Run& run, const SlurmJob& job) {
  if (!is_later_run(job, run.job)) return std::nullopt;
  run.say(
      fmt::format("this is run {} of the job, but Slurm is at run {}: leaving the job to that run",
                  run.job.restarts, job.restarts));
  return finish(run, kOk);
}

bool keeps_agents(const Run& run) {
  return run.agents.there && run.agents.well && run.agents.open && !run.agents.ended &&
         run.agents.nodes == run.layout.nodes();
}

// The launcher cannot know what a program does by itself.
std::string begin_of_ranks(const Run& run, bool clearing) {
  if (auto step = run.progress.newest_commit) return fmt::format("step {}", *step);
  if (run.rules.own.possible()) return "what the program has saved";
  const bool first = run.job.restarts == 0 && run.attempt.number == 1 && !clearing;
  return first || run.progress.ever_joined ? "the start"
                                           : "what the program may have saved by itself";
}

Move agent_greeted(Run& run, state::Greeting& greeting, const std::string& node) {
  greeting.awaited.erase(node);
  if (!greeting.awaited.empty()) return std::nullopt;
  return say_hello(run);
}

State step_found(Run& run, const event::Found& found) {
  for (const SkippedStep& skipped : found.skipped)
    run.say(fmt::format("the checkpoint of step {} is not used: {}", skipped.step, skipped.error));
  // It may have been saved again since it was noted as bad.
  if (found.step) run.choice.note_good(*found.step);
  run.progress.newest_commit = found.step;
  run.progress.newest_step = found.step.value_or(0);
  command::Restore offer = run.choice.offer(found);
  if (offer.error) return clear(run, state::Next::fail, offer.error->text);
  offer.rendezvous = run.rules.rendezvous;
  run.send({std::move(offer)});
  const std::vector<std::string> nodes = run.layout.nodes();
  return state::Restoring{run.now + kAgentsMustGreet, {nodes.begin(), nodes.end()}};
}

Move agent_ready(Run& run, state::Restoring& restoring, const std::string& node,
                 const event::Ready& ready) {
  restoring.awaited.erase(node);
  if (ready.rendezvous) restoring.rendezvous = ready.rendezvous;
  // What Slurm says of the job comes first: ranks would be ended amid their work.
  if (!restoring.awaited.empty() || run.fault.pending) return std::nullopt;
  return start_ranks(run, restoring.rendezvous);
}

}  // namespace bellows
