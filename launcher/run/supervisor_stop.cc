// SPDX-License-Identifier: Apache-2.0
// Supervisor's stops, faults and ends.
#include <fmt/core.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/record/lost_halt.h"
#include "launcher/run/supervisor.h"
#include "slurm/requeue.h"

namespace bellows {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kEndsByItself = 10s;
constexpr auto kEndsAfterSignal = 5s;
constexpr auto kLetGoWithin = 3s;
constexpr auto kHistoryWithin = 3s;
constexpr int kMostEscalations = 60;
/// Of a step that waits for a lost node: see never_ends().
constexpr int kMostAfterLoss = 4;
constexpr int kMostInTree = 120;
// Any margin is safe. The smallest stops soonest: the newest step heard of is up to a second old,
// so the first gate mostly just learns where the ranks are, and the next one holds them.
constexpr std::uint64_t kGateAhead = 1;
constexpr std::uint64_t kMostGpus = 4096;

bool is_own_step(const SlurmStep& step) {
  return step.name.starts_with("bellows-agent-") || step.name.starts_with(kRanksStep);
}

}  // namespace

void Supervisor::answer(std::uint64_t client, const std::string& text) {
  if (client != 0) control_->send(client, text);
}

void Supervisor::handle_request(const ControlServer::Request& request) {
  json message = json::parse(request.line, nullptr, false);
  std::string cmd = message.is_object() ? message.value("cmd", json()).dump() : "";
  if (cmd == "\"status\"") {
    json reply = {{"event", "status"},
                  {"world", layout_.world()},
                  {"gpus", layout_.gpus()},
                  {"step", newest_step_},
                  {"stopping", stop_.has_value()}};
    return answer(request.client, reply.dump());
  }
  if (cmd != "\"stop\"") {
    json reply = {{"event", "error"}, {"error", "the launcher does not know this command"}};
    return answer(request.client, reply.dump());
  }
  Stop stop{"resize", std::nullopt, request.client};
  if (auto hold = message.find("hold"); hold != message.end() && hold->is_boolean() && *hold)
    stop = {kHalt, std::nullopt, request.client, true};
  stop.from_scratch = message.contains("from_scratch") && message["from_scratch"] == true;
  if (auto gpus = message.find("gpus"); gpus != message.end()) {
    auto wanted = gpus->is_number_unsigned() ? gpus->get<std::uint64_t>() : 0;
    bool allowed = wanted > 0 && wanted <= kMostGpus &&
                   (!context_.contract ||
                    context_.contract->gpus.contains(static_cast<std::uint32_t>(wanted)));
    if (!allowed) {
      json reply = {{"event", "error"}, {"error", "the job may not hold so many GPUs"}};
      return answer(request.client, reply.dump());
    }
    stop.gpus = static_cast<std::uint32_t>(wanted);
  }
  request_stop(std::move(stop));
}

void Supervisor::request_stop(Stop stop) {
  auto refuse = [this, &stop](const std::string& why) {
    answer(stop.client, json{{"event", "error"}, {"error", why}}.dump());
  };
  if (stop_) return refuse("the job is already stopping: " + stop_->reason);
  bool all_joined = joined_.size() >= layout_.world();
  bool ending = phase_ == Phase::clearing || phase_ == Phase::draining;
  if (phase_ == Phase::judging || phase_ == Phase::forgotten || (ending && next_ != Next::restart))
    return refuse("the job is ending");
  bool by_itself = phase_ == Phase::running && saves_by_itself();
  bool may_wait = phase_ == Phase::running && stop.client != 0 && !stop.from_scratch && !by_itself;
  if (may_wait && joined_.empty())
    return refuse(
        "its program has not called bellows_init (yet), and nothing else makes it save, so its "
        "work "
        "may be lost; try again in a moment, say in the script how it saves (--checkpoint-signal "
        "or "
        "--checkpoint-cmd of bellows run), or stop it as it is with --from-scratch");
  if (may_wait && !all_joined)
    return answer(stop.client,
                  json{{"event", "error"},
                       {"error", "its ranks are still starting; try again in a moment"},
                       {"again", true}}
                      .dump());
  stop_ = std::move(stop);
  marker_.plan(stop_->gpus);
  if (by_itself) return begin_own_stop();
  if (phase_ == Phase::running && all_joined) {
    std::string to = stop_->gpus ? " to " + counted(*stop_->gpus, "GPU") : "";
    record("CHECKPOINTING", stop_->reason + to, stop_->hold ? EventNote::halting : EventNote::none);
    decision_.emplace(layout_.nodes().size(), newest_step_, kGateAhead);
    return send_decision(decision_->begin());
  }
  answer(stop_->client, json{{"event", "stopping"}, {"step", nullptr}}.dump());
  if (ending)
    next_ = Next::stop;
  else
    clear(Next::stop, stop_->reason);
}

void Supervisor::send_decision(const Command& command) {
  if (command.kind == Command::Kind::stop) {
    say(fmt::format("all ranks stop at step {} ({})", *command.step, stop_->reason));
    answer(stop_->client, json{{"event", "stopping"}, {"step", *command.step}}.dump());
  }
  agents_->send(command);
}

void Supervisor::ranks_ended(const ChildExit& exit) {
  hang_called_ = false;
  if (exit.ok()) fault_pending_ = false;
  if (finished_.found()) {
    fault_pending_ = false;
    return clear(Next::complete, "the program had said that it is finished");
  }
  if (!exit.ok()) {
    if (failure_.no_start().empty()) note_unused("no rank had called bellows_init");
    return ranks_failed(exit);
  }
  if (joined_.empty() && !said_unused_ && !context_.options.own.possible()) {
    said_unused_ = true;
    say("the program did not use libbellows: it had no checkpoint to go on from");
  }
  if (!agents_ || (joined_.empty() && !stop_))
    return clear(Next::complete, "the program has finished");
  drain(Phase::judging);
}

void Supervisor::judge() {
  const bool finished = ends_.finished() >= layout_.world() || joined_.empty();
  const std::string deaths = ends_.deaths();
  if (finished || (!stop_ && deaths.empty()))
    return clear(Next::complete, "the program has finished");
  if (!stop_) {
    agents_well_ &= saves_.all_answered(layout_.nodes().size());
    enter(Phase::running, kNoLimit);
    return rank_died(deaths, kFailed);
  }
  say("the ranks ended at the stop without a checkpoint of it");
  clear(Next::stop, stop_->reason);
}

void Supervisor::fault(const std::string& cause, Blame blame, int exit_code) {
  if (fault_pending_ || phase_ == Phase::clearing || phase_ == Phase::waiting ||
      phase_ == Phase::saving || phase_ == Phase::judging || phase_ == Phase::draining ||
      phase_ == Phase::forgotten)
    return;
  say(cause);
  fault_pending_ = true;
  faulted_ = Clock::now();
  blame_ = blame;
  cause_ = cause;
  exit_code_ = exit_code;
  // A requeue, a cancel and a dead node look like faults from here: Slurm knows.
  must_ask_slurm_ = true;
}

// libslurm waits for as long as slurmctld is away; commits and ranks do not.
void Supervisor::ask_slurm() {
  const auto look = [this]() -> Status {
    auto job = slurm_.job(job_.id);
    return job ? Status() : Status(job.error());
  };
  if (!reach_.answers(look, Clock::now())) {
    if (auto why = reach_.trouble()) say(*why + "; asking again");
    return;
  }
  auto job = slurm_.job(job_.id);
  if (!job && job.error().kind != ErrorKind::not_found) {
    say(job.error().text + "; asking again");
    return;
  }
  must_ask_slurm_ = false;
  if (!job) return finish(kFailed);
  act_on_job_state(*job);
}

void Supervisor::act_on_job_state(const SlurmJob& job) {
  if (runs_anew(job)) return;
  if (job.state != SlurmState::running && job.state != SlurmState::suspended)
    return act_on_job_end(job);
  const bool preempted = job.preempt_time != 0;
  if (!fault_pending_) {
    if (std::exchange(term_came_, false) || preempted)
      request_stop({preempted ? "preemption" : "signal TERM", std::nullopt, 0});
    return;
  }
  // The ranks may have died of the signal that announces it.
  if (preempted && !stop_) stop_ = Stop{"preemption", std::nullopt, 0};
  if (std::exchange(term_came_, false) && !stop_) stop_ = Stop{"signal TERM", std::nullopt, 0};

  // Nothing can be started in a suspended job, and what did not advance did not hang.
  if (job.state == SlurmState::suspended) {
    if (hang_called_) return drop_hang("the job is suspended");
    must_ask_slurm_ = true;
    return;
  }
  fault_pending_ = false;
  Next next = Next::restart;
  const bool same = job.nodes == job_.nodes;
  if (!take_layout_of(job) && !stop_) stop_ = Stop{cause_, std::nullopt, 0};
  if (!same) blame_ = Blame::cluster;
  if (stop_)
    next = Next::stop;
  else if (hopeless_ || !budget_.spend(blame_, newest_commit(), newest_step_))
    next = out_of_budget();
  if (!ranks_ && agents_ && !joined_.empty()) {
    next_ = next;
    return drain(Phase::draining);
  }
  clear(next, cause_);
}

void Supervisor::act_on_job_end(const SlurmJob& job) {
  switch (job.state) {
    case SlurmState::pending:
      return leave_pending(job);
    case SlurmState::cancelled:
      record("CANCELLED", "scancel");
      return finish(kFailed);
    case SlurmState::timeout:
      // A run that got nowhere would get nowhere again.
      if (!progressed_ && !own_saved_) break;
      if (!stop_) stop_ = Stop{"time limit", std::nullopt, 0};
      return requeue_self();
    case SlurmState::preempted:
      if (!stop_) stop_ = Stop{"preemption", std::nullopt, 0};
      return requeue_self();
    default:
      break;
  }
  record("FAILED", fmt::format("Slurm: {}", slurm_state_name(job.state)));
  finish(kFailed);
}

Supervisor::Next Supervisor::out_of_budget() {
  if (blame_ == Blame::cluster) {
    stop_ = Stop{cause_, std::nullopt, 0};
    out_of_tries_ = true;
    return Next::stop;
  }
  if (!hopeless_ && budget_.failures() > 1)
    cause_ += fmt::format("; {} failures in a row without progress", budget_.failures());
  if (!failure_.last_words().empty())
    cause_ += fmt::format("; its last words: {}", failure_.last_words());
  return Next::fail;
}

void Supervisor::clear(Next next, const std::string& cause) {
  next_ = next;
  cause_ = cause;
  escalation_ = 0;
  // Ranks that saved for the stop are on their way out; what they still write is theirs.
  bool leaving = stop_saved_ || next == Next::complete;
  if (ranks_ && !leaving) ranks_->signal(SIGTERM);
  enter(Phase::clearing, kEndsByItself);
  check_children();
}

void Supervisor::escalate() {
  ++escalation_;
  if (escalation_ <= 2) {
    int number = escalation_ == 1 ? SIGTERM : SIGKILL;
    if (ranks_) ranks_->signal(number);
    if (agents_) agents_->child().signal(number);
    return enter(Phase::clearing, kEndsAfterSignal);
  }
  // What is left is for slurmctld to end, which may be out of reach.
  if (next_ == Next::leave) return cleared();
  const bool lost_node = shrunk_from_ > 0;
  if (escalation_ > (!lost_node ? kMostEscalations : never_ends() ? kMostAfterLoss : kMostInTree)) {
    if (next_ != Next::restart) return cleared();
    say("the steps do not end: a node may be lost; requeueing the job");
    if (!lost_node) cause_ = "the steps of an earlier attempt did not end";
    return requeue_self();
  }
  // A killed srun leaves its tasks to Slurm.
  auto steps = slurm_.steps(job_.id);
  if (!steps) {
    --escalation_;
    return enter(Phase::clearing, 1s);
  }
  bool left = false;
  for (const SlurmStep& step : *steps) {
    if (!is_own_step(step)) continue;
    left = true;
    if (Status status = slurm_.signal_step(job_.id, step.id, SIGKILL); !status)
      say(status.error().text);
  }
  // Only a restart in place needs what such a step holds.
  if (!left || (lost_node && next_ != Next::restart)) return cleared();
  enter(Phase::clearing, 1s);
}

void Supervisor::cleared() {
  drop_ranks();
  if (!keeps_agents()) agents_.reset();
  switch (next_) {
    case Next::restart: {
      cause_ += "; back to " + begin_of_ranks();
      if (auto failures = budget_.failures_of(Blame::program); failures > 0)
        say(fmt::format("starting again ({} of at most {} failures without progress)", failures,
                        budget_.most()));
      return enter(Phase::waiting, budget_.pause());
    }
    case Next::stop:
      if (stop_ && stop_->client != 0 && !stop_saved_) return hand_over();
      if (!leads_nowhere()) return requeue_self();
      [[fallthrough]];
    case Next::fail:
      record("FAILED", cause_);
      say("giving up: " + cause_);
      if (stop_) answer(stop_->client, json{{"event", "error"}, {"error", cause_}}.dump());
      return finish(exit_code_ == 0 ? kFailed : exit_code_);
    case Next::complete:
      // Killed from here on, the launcher comes back to find that the program has finished.
      if (!finished_.leave()) marker_.remove();
      record("COMPLETED", cause_);
      if (stop_) answer(stop_->client, json{{"event", "finished"}}.dump());
      return finish(kOk);
    case Next::leave:
      return finish(exit_code_);
  }
}

void Supervisor::hand_over() {
  if (stop_->client == 0) return clear(Next::stop, stop_->reason);
  json reply = {{"event", "committed"}, {"step", nullptr}};
  if (auto step = newest_commit()) reply["step"] = *step;
  if (own_saved_) reply["own"] = "saved";
  if (!own_saved_ && !ever_joined_) reply["own"] = "unknown";
  // The ranks have ended all the same, and the next ones need not be of the old size.
  const bool unsaved = decision_ && decision_->step() && !stop_saved_;
  if (unsaved) reply["unsaved"] = *decision_->step();
  const std::string but =
      unsaved ? fmt::format(", but step {} could not be saved", *decision_->step()) : "";
  if (stop_->hold)
    record("HALTED", "bellows halt" + but);
  else
    record("RESIZING",
           fmt::format("to {}{}", counted(stop_->gpus.value_or(layout_.gpus()), "GPU"), but));
  end_recorded_ = true;
  answer(stop_->client, reply.dump());
  enter(Phase::handed_over, kHandOver);
}

// A step whose srun was killed lingers for seconds, and holds up the job's next start.
void Supervisor::let_children_go() {
  dismiss_agents();
  auto limit = Clock::now() + kLetGoWithin;
  while (Clock::now() < limit) {
    (void)hear_agents();
    bool ranks_over = !ranks_ || ranks_->poll_exit();
    bool agents_over = !agents_ || agents_->child().poll_exit();
    if (ranks_over && agents_over) return;
    std::this_thread::sleep_for(20ms);
  }
}

void Supervisor::finish(int exit_status) {
  // A job that is given up must not come back when its launcher is killed from here on.
  if (exit_status != kOk) marker_.remove();
  let_children_go();
  if (const std::size_t left = log_->close(kHistoryWithin); left > 0)
    say(fmt::format("{} lines of the history of this job could not be written", left));
  result_ = exit_status;
  drop_ranks();
  agents_.reset();
}

}  // namespace bellows
