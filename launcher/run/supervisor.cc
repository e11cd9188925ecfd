// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "checkpoint/store/store.h"
#include "common/text.h"
#include "launcher/base/exit_status.h"
#include "launcher/logs/log_line.h"
#include "launcher/record/history.h"

namespace bellows {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr auto kAgentsMustGreet = 60s;
constexpr auto kVerifyAtMost = 2h;
constexpr auto kOutputWithin = 3s;
constexpr auto kJoinsWithin = 30s;
constexpr auto kRecordSavesEvery = 1s;

Result<Fd> open_signals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int number : {SIGCHLD, SIGUSR1, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  Fd fd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return errno_error("make", "a signal descriptor");
  return fd;
}

}  // namespace

Supervisor::Supervisor(Slurm& slurm, RunContext context, SlurmJob job, RankLayout layout)
    : slurm_(slurm),
      context_(std::move(context)),
      job_(std::move(job)),
      layout_(std::move(layout)),
      marker_(context_.run_dir),
      finished_(context_.checkpoint_dir, context_.run),
      hang_(std::chrono::seconds(context_.options.hang_floor)),
      gang_(std::chrono::seconds(context_.options.start_limit)),
      budget_(context_.options.max_restarts) {}

void Supervisor::say(const std::string& text) {
  const std::string line = "bellows run: " + text;
  if (output_)
    output_->say(line);
  else
    fmt::print(stderr, "{}\n", line);
}

void Supervisor::enter(Phase phase, milliseconds limit) {
  phase_ = phase;
  deadline_ = Clock::now() + limit;
}

std::string Supervisor::ranks_step_name() const {
  return fmt::format("{}{}", kRanksStep, attempt_);
}

std::optional<std::uint64_t> Supervisor::newest_commit() const { return newest_commit_; }

void Supervisor::record(const std::string& event, const std::string& cause, EventNote note) {
  if (!log_) return;
  JobEvent line{wall_clock(), job_.id,        job_.restarts,   attempt_,       event,
                cause,        layout_.gpus(), layout_.nodes(), newest_commit()};
  if (newest_step_ > 0) line.reached = newest_step_;
  line.note = note;
  log_->add(line);
}

Status Supervisor::open_resources() {
  auto signals = open_signals();
  if (!signals) return signals.error();
  signals_ = std::move(*signals);
  auto control = ControlServer::listen(context_.control_socket());
  if (!control) return control.error();
  control_.emplace(std::move(*control));
  if (Status status = marker_.write(); !status) return status;
  log_.emplace(context_.checkpoint_dir, context_.access);
  auto output = OutputRelay::start({.log_dir = log_dir_of(context_.checkpoint_dir),
                                    .job = job_.id,
                                    .restart = job_.restarts,
                                    .log_bytes = std::uint64_t{context_.options.log_mib} << 20,
                                    .access = context_.access});
  if (!output) return output.error();
  output_.emplace(std::move(*output));
  // What is asked before the agents have looked must not hear that there is no checkpoint.
  if (auto steps = list_steps(context_.checkpoint_dir); steps && !steps->empty())
    newest_commit_ = steps->back();
  return {};
}

int Supervisor::run() {
  if (Status status = open_resources(); !status) {
    say(status.error().text);
    marker_.remove();
    return kFailed;
  }
  log_->add({static_cast<double>(job_.submit_time),
             job_.id,
             job_.restarts,
             0,
             "QUEUED",
             job_.restarts == 0 ? "submitted" : "requeued",
             layout_.gpus(),
             {},
             {}});
  say(fmt::format("job {} holds {} on {}: {}; checkpoints in {}", job_.id,
                  counted(layout_.gpus(), "GPU"), fmt::join(layout_.nodes(), ","),
                  counted(layout_.world(), "rank"), context_.checkpoint_dir));
  cause_ = job_.restarts == 0 ? "started" : fmt::format("restart {}", job_.restarts);
  begin_attempt();
  while (!result_) loop_once();
  output_->close(kOutputWithin);
  marker_.remove();
  finished_.withdraw();
  return *result_;
}

void Supervisor::begin_attempt() {
  if (give_way_to_owner() || finished_before() || halted_before()) return;
  ++attempt_;
  shrunk_from_ = 0;
  drop_ranks();
  joined_.clear();
  time_.begin_attempt();
  ends_ = RankEnds();
  exit_code_ = 0;
  rendezvous_.reset();
  restored_ = RestoreTally();
  commits_ = Coordinator(layout_.world());
  saves_.begin_attempt();
  decision_.reset();
  fault_pending_ = false;
  record("DEPLOYING", cause_);
  if (keeps_agents()) return say_hello();
  start_agents();
}

// Agents that outlived their ranks hold the newest checkpoint in memory, and are there already.
bool Supervisor::keeps_agents() {
  return next_ == Next::restart && escalation_ == 0 && agents_ && agents_well_ &&
         agents_->child().in() >= 0 && !agents_->child().poll_exit() &&
         agents_->nodes() == layout_.nodes();
}

void Supervisor::start_agents() {
  agents_.reset();
  awaited_.clear();
  for (const std::string& node : layout_.nodes()) awaited_.insert(node);
  AgentLink::Options options{context_.program, context_.agent_socket(),
                             fmt::format("bellows-agent-{}", attempt_),
                             host_step_environment(environ)};
  auto agents = AgentLink::start(layout_, options);
  enter(Phase::greeting, kAgentsMustGreet);
  if (!agents) return fault(agents.error().text, Blame::cluster, kFailed);
  agents_.emplace(std::move(*agents));
  agents_well_ = true;
  agent_death_noted_ = agent_said_why_ = false;
}

std::string Supervisor::attempt_name() const { return context_.run.attempt(attempt_); }

int Supervisor::poll_timeout() const {
  if (must_ask_slurm_) return 500;
  if (phase_ == Phase::clearing && agent_lost()) return 200;
  auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

void Supervisor::loop_once() {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  control_->add_poll(fds);
  output_->add_poll(fds);
  if (agents_) agents_->add_poll(fds);
  time_.add_poll(fds);
  reach_.add_poll(fds);
  owner_watch_.add_poll(fds);
  poll(fds.data(), fds.size(), poll_timeout());
  note_pause();
  heed_history();
  handle_signals();
  // A rank that goes is told by its agent before others fail for it and srun names those.
  read_agents();
  read_rank_errors();
  end_drain();
  for (const ControlServer::Request& request : control_->serve()) handle_request(request);
  if (!result_) check_children();
  if (!result_) watch();
  if (!result_) watch_nodes();
  if (!result_) watch_time();
  if (!result_) watch_owner();
  if (!result_ && must_ask_slurm_) ask_slurm();
  if (!result_ && Clock::now() >= deadline_) check_deadline();
}

void Supervisor::handle_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    switch (info.ssi_signo) {
      case SIGCHLD:
        break;
      case SIGUSR1:
        heed_signal("USR1");
        break;
      default:
        // Slurm sends SIGTERM for a requeue, a cancel, a time limit and a preemption alike.
        term_came_ = must_ask_slurm_ = true;
    }
  }
}

void Supervisor::say_hello() {
  Command hello;
  hello.kind = Command::Kind::hello;
  hello.dir = context_.checkpoint_dir;
  hello.base = context_.trusted_base;
  hello.access = context_.access;
  hello.world = layout_.world();
  hello.ranks = layout_.ranks();
  hello.attempt = attempt_name();
  hello.replaces = owner_.attempt;
  hello.leader = layout_.nodes().front();
  hello.keep = context_.options.keep;
  hello.keep_every = context_.options.keep_every;
  agents_->send(hello);
  Command find = choice_.find();
  find.node = hello.leader;
  agents_->send(find);
  enter(Phase::finding, kVerifyAtMost);
}

// Until every agent has the new attempt, what they say may be of the one before.
bool Supervisor::is_stale(const Event& event) const {
  using Kind = Event::Kind;
  if (event.kind == Kind::error) return !decision_ && (event.cmd == "gate" || event.cmd == "stop");
  return beginning() && event.kind != Kind::hello && event.kind != Kind::found &&
         event.kind != Kind::ready;
}

void Supervisor::offer_step(const Event& found) {
  for (const SkippedStep& skipped : found.skipped)
    say(fmt::format("the checkpoint of step {} is not used: {}", skipped.step, skipped.error));
  // It may have been saved again since it was noted as bad.
  if (found.step) choice_.note_good(*found.step);
  newest_commit_ = found.step;
  newest_step_ = found.step.value_or(0);
  Command offer = choice_.offer(found);
  if (!offer.error.empty()) return clear(Next::fail, offer.error);
  offer.rendezvous = context_.launch == LaunchKind::torch;
  for (const std::string& node : layout_.nodes()) awaited_.insert(node);
  agents_->send(offer);
  enter(Phase::restoring, kAgentsMustGreet);
}

// Ranks that have begun from it have saved nothing: that takes all of them.
void Supervisor::leave_step(const Event& bad) {
  const std::uint64_t step = bad.step.value_or(0);
  if (choice_.note_bad(bad)) {
    newest_commit_.reset();
    auto steps = list_steps(context_.checkpoint_dir);
    for (std::uint64_t older : steps ? *steps : std::vector<std::uint64_t>())
      if (older < step) newest_commit_ = older;
  }
  fault(fmt::format("rank {} on {} cannot go on from step {}: {}", bad.rank, bad.node, step,
                    bad.error),
        Blame::storage, kFailed);
}

void Supervisor::handle_agent_event(const Event& event) {
  if (!agents_ || is_stale(event)) return;
  if (auto all = restored_.add(event, layout_.world())) record("PROCESSING", *all);
  switch (event.kind) {
    case Event::Kind::hello:
      awaited_.erase(event.node);
      if (phase_ == Phase::greeting && awaited_.empty()) say_hello();
      return;
    case Event::Kind::found:
      if (phase_ == Phase::finding) offer_step(event);
      return;
    case Event::Kind::restore_error:
      return leave_step(event);
    case Event::Kind::restored:
      return;
    case Event::Kind::ready:
      awaited_.erase(event.node);
      if (event.rendezvous) rendezvous_ = event.rendezvous;
      if (phase_ == Phase::restoring && awaited_.empty()) start_ranks();
      return;
    case Event::Kind::gated:
      if (decision_)
        for (const Command& command : decision_->handle(event)) send_decision(command);
      return;
    case Event::Kind::progress:
      note_progress(event);
      time_.note_step(newest_step_, seconds_now());
      heed_signal(event.signal);
      return saves_.note_unwritten(event, Clock::now());
    case Event::Kind::rank:
      note_rank(event);
      break;
    case Event::Kind::error:
      agent_failed(event);
      break;
    case Event::Kind::save_error:
      note_save_error(event);
      break;
    default:
      break;
  }
  note_commit(event);
}

void Supervisor::note_commit(const Event& event) {
  if (event.kind != Event::Kind::rank) saves_.note_news(Clock::now());
  time_.note_save(event, seconds_now());
  for (const Command& command : commits_.handle(event)) {
    agents_->send(command);
    if (command.kind != Command::Kind::commit) saves_.end(*command.step);
  }
  const auto now = Clock::now();
  const bool recordable = now - last_save_record_ >= kRecordSavesEvery || stop_;
  // Saves that fail one after the other have no commit to go by.
  const bool begins = recordable && (now - last_begin_record_ >= kRecordSavesEvery || stop_);
  // A part may come after its step has failed; nothing would ever end that save.
  const bool opens = event.kind == Event::Kind::shard && commits_.is_pending(*event.step);
  if (opens && saves_.begin(*event.step) && begins) {
    record("CHECKPOINTING", fmt::format("step {}", *event.step), EventNote::saving);
    last_begin_record_ = now;
  }
  if (event.kind != Event::Kind::committed) return;
  complain_of_grace();
  newest_commit_ = event.step;
  choice_.note_good(*event.step);
  newest_step_ = std::max(newest_step_, *event.step);
  progressed_ = true;
  if (!save_error_.empty()) say(fmt::format("step {} is saved: saving works again", *event.step));
  save_error_.clear();
  if (decision_ && decision_->step() && *event.step >= *decision_->step()) {
    stop_saved_ = true;
    record("STORING", fmt::format("committed step {}: {}", *event.step, stop_->reason),
           EventNote::committed);
    hand_over();
  } else if (recordable) {
    record("PROCESSING", fmt::format("committed step {}", *event.step), EventNote::committed);
    last_save_record_ = now;
  }
}

void Supervisor::start_ranks() {
  ChildOptions child;
  const RankCommand command{context_.launch, context_.options.cpu_bind, layout_};
  child.command = command.words(ranks_step_name(), context_.options.command);
  child.environment = command.environment(environ, context_.agent_socket(), rendezvous_);
  child.environment.push_back("BELLOWS_ATTEMPT=" + attempt_name());
  child.environment.push_back("BELLOWS_FINISHED_FILE=" + finished_.path());
  // srun then takes its tasks down; the agents' srun ends by itself at the end of its input.
  child.death_signal = SIGTERM;
  child.pipe_out = child.pipe_err = true;
  auto ranks = Child::start(child);
  enter(Phase::running, kJoinsWithin);
  if (!ranks) return fault(ranks.error().text, Blame::program, kFailed);
  ranks_.emplace(std::move(*ranks));
  begin_watch();
  output_->attach(job_.restarts, attempt_, ranks_->take_out(), ranks_->take_err());
  const std::string from = "from " + begin_of_ranks();
  say(fmt::format("{} start{} {}", counted(layout_.world(), "rank"),
                  layout_.world() == 1 ? "s" : "", from));
  record("PROCESSING", from);
}

void Supervisor::check_children() {
  if (phase_ == Phase::clearing) {
    bool no_ranks = !ranks_ || ranks_->poll_exit();
    bool agents_over = !agents_ || agents_->child().poll_exit();
    bool kept = keeps_agents();
    // Ranks may wait for a stop that their agent was told of, when srun took it down with the one
    // that died: once it has gone they see that none comes.
    const bool useless = no_ranks || (agent_lost() && drained());
    if (useless && !agents_over && !kept) dismiss_agents();
    if (no_ranks && (agents_over || kept) && escalation_ < 2 && !step_stays()) cleared();
    return;
  }
  if (phase_ == Phase::saving) return watch_own_stop();
  bool ranks_live = phase_ == Phase::running || phase_ == Phase::handed_over;
  // Whether it has ended by itself or was told to by Slurm is for Slurm to say.
  if (must_ask_slurm_ && !fault_pending_ && saves_by_itself()) ranks_live = false;
  if (ranks_live && ranks_over()) {
    const ChildExit exit = end_of_ranks();
    if (phase_ == Phase::running) return ranks_ended(exit);
    dismiss_agents();
  }
  if (agents_ && agents_->child().poll_exit() && phase_ != Phase::waiting) {
    const ChildExit exit = *agents_->child().poll_exit();
    read_agents();
    if (!agents_ || result_) return;
    const std::string end = agents_->end();
    agents_.reset();
    if (phase_ == Phase::handed_over) return;
    if (phase_ == Phase::judging) return judge();
    if (phase_ == Phase::draining) return clear(next_, cause_);
    // Told of a preemption, agents without ranks leave.
    if (phase_ == Phase::running && exit.ok() && joined_.empty()) return;
    Blame blame = phase_ == Phase::running ? Blame::program : Blame::cluster;
    fault(end, blame, kFailed);
  }
}

void Supervisor::check_deadline() {
  switch (phase_) {
    case Phase::greeting:
      return fault(fmt::format("no answer from the agents on {}", fmt::join(awaited_, ",")),
                   Blame::cluster, kFailed);
    case Phase::finding:
    case Phase::restoring:
      agents_well_ = false;
      return fault("the agents did not get the checkpoint ready in time", Blame::storage, kFailed);
    case Phase::judging:
      if (!drained()) return enter(Phase::judging, 200ms);
      return judge();
    case Phase::draining:
      if (!drained()) return enter(Phase::draining, 200ms);
      agents_well_ &= saves_.all_answered(layout_.nodes().size());
      return clear(next_, cause_);
    case Phase::clearing:
      return escalate();
    case Phase::waiting:
      return begin_attempt();
    case Phase::handed_over:
      say("nobody requeued the job after the stop: doing it now");
      return requeue_self();
    case Phase::forgotten:
      return finish(kOk);
    case Phase::running:
      note_unused(fmt::format("no rank has called bellows_init within {} s", kJoinsWithin.count()));
      return enter(Phase::running, kNoLimit);
    case Phase::saving:
      return watch_own_stop();
  }
}

}  // namespace bellows
