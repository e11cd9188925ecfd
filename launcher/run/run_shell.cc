// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/run_shell.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/store/store.h"
#include "launcher/base/exit_status.h"
#include "launcher/logs/log_line.h"
#include "launcher/record/batch_record.h"
#include "launcher/run/control_request.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr auto kOutputWithin = 3s;
constexpr auto kHistoryWithin = 3s;
/// The loop comes round every second: after so long nobody ran, as in a suspended job.
constexpr auto kPaused = 5s;

Result<Fd> open_signals() {
  sigset_t mask;
  sigemptyset(&mask);
  for (int number : {SIGCHLD, SIGUSR1, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, number);
  Fd fd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return errno_error("make", "a signal descriptor");
  return fd;
}

RunRules rules_of(const RunContext& context) {
  const RunOptions& options = context.options;
  return {.run = context.run,
          .checkpoint_dir = context.checkpoint_dir,
          .trusted_base = context.trusted_base,
          .access = context.access,
          .keep = options.keep,
          .keep_every = options.keep_every,
          .max_restarts = options.max_restarts,
          .start_limit = std::chrono::seconds(options.start_limit),
          .hang_floor = std::chrono::seconds(options.hang_floor),
          .stays = options.on_drain == "stay",
          .rendezvous = context.launch == LaunchKind::torch,
          .own = options.own,
          .contract = context.contract};
}

// A client that asks before the agents have looked must not be told that there is no checkpoint.
std::optional<std::uint64_t> newest_on_disk(const std::string& checkpoint_dir) {
  auto steps = list_steps(checkpoint_dir);
  return steps && !steps->empty() ? std::optional(steps->back()) : std::nullopt;
}

}  // namespace

RunShell::RunShell(Slurm& slurm, RunContext context, SlurmJob job, RankLayout layout)
    : context_(std::move(context)),
      marker_(context_.run_dir),
      finished_(context_.checkpoint_dir, context_.run),
      inquiries_(slurm, context_, finished_),
      machine_(rules_of(context_), job, std::move(layout), newest_on_disk(context_.checkpoint_dir)),
      restart_(job.restarts),
      recorded_(context_.ordered) {}

void RunShell::say(const std::string& text) {
  const std::string line = "bellows run: " + text;
  if (output_)
    output_->say(line);
  else
    fmt::print(stderr, "{}\n", line);
}

Status RunShell::open_resources() {
  auto signals = open_signals();
  if (!signals) return signals.error();
  signals_ = std::move(*signals);
  auto control = ControlServer::listen(context_.control_socket());
  if (!control) return control.error();
  control_.emplace(std::move(*control));
  if (Status status = marker_.write(); !status) return status;
  log_.emplace(context_.checkpoint_dir, context_.access);
  auto output = OutputRelay::start({.log_dir = log_dir_of(context_.checkpoint_dir),
                                    .job = context_.job_id,
                                    .restart = restart_,
                                    .log_bytes = std::uint64_t{context_.options.log_mib} << 20,
                                    .access = context_.access});
  if (!output) return output.error();
  output_.emplace(std::move(*output));
  processes_.emplace(context_, finished_, *output_, restart_);
  if (context_.launch == LaunchKind::ps)
    server_watch_.emplace(ServerWatch::Place{context_.server_socket(), context_.checkpoint_dir,
                                             context_.access, context_.job_id, restart_});
  if (context_.controller)
    controller_.emplace(context_.controller->address, context_.controller->slurm_user,
                        Munge(context_.controller->munge_socket));
  return {};
}

int RunShell::run() {
  if (Status status = open_resources(); !status) {
    say(status.error().text);
    marker_.remove();
    return kFailed;
  }
  if (const auto batch = context_.ordered.at(machine_.run().layout.gpus()))
    say(fmt::format("the program is to use batch {}", *batch));
  machine_.begin(Clock::now());
  feed(std::vector<Input>());
  while (!machine_.status()) loop_once();
  output_->close(kOutputWithin);
  marker_.remove();
  if (!inquiries_.may_have_successor()) finished_.withdraw();
  return *machine_.status();
}

void RunShell::wait() const {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  control_->add_poll(fds);
  output_->add_poll(fds);
  processes_->add_poll(fds);
  const RunMachine::Wanted wanted = machine_.wanted();
  inquiries_.add_poll(fds, wanted);
  if (controller_) controller_->add_poll(fds);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wanted.tick - Clock::now());
  poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000)));
}

void RunShell::loop_once() {
  wait();
  note_pause();
  if (auto news = log_->news()) feed(input::HistoryNews{*news, log_->well()});
  read_signals();
  feed(processes_->words());
  read_requests();
  read_ends();
  read_answers();
  feed(input::Tick{});
  ask_about_job();
  ask_controller();
}

void RunShell::note_pause() {
  const auto now = Clock::now();
  const auto gap = now - last_loop_;
  if (last_loop_ != Clock::time_point() && gap > kPaused) feed(input::Paused{gap});
  last_loop_ = now;
}

void RunShell::read_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGUSR1)
      feed(input::Usr1{});
    else if (info.ssi_signo != SIGCHLD)
      feed(input::Term{});
  }
}

void RunShell::read_requests() {
  for (const ControlServer::Request& request : control_->serve()) {
    auto wanted = parse_request(request);
    if (wanted) {
      feed(std::move(*wanted));
      continue;
    }
    const nlohmann::json refusal = {{"event", "error"}, {"error", wanted.error().text}};
    control_->send(request.client, refusal.dump());
  }
}

void RunShell::read_ends() {
  const auto now = Clock::now();
  if (processes_->ranks_gone(now)) feed(input::RanksGone{});
  if (machine_.wanted().ranks_end) feed(processes_->end_of_ranks(now));
  feed(processes_->ends());
}

void RunShell::read_answers() {
  const auto now = Clock::now();
  feed(inquiries_.answers(now));
  if (!machine_.wanted().owner) return;
  if (auto owner = inquiries_.look_at_owner(now)) feed(std::move(*owner));
}

void RunShell::ask_about_job() {
  if (!machine_.wanted().job) return;
  if (auto job = inquiries_.look_at_job(Clock::now())) return feed(std::move(*job));
  if (auto trouble = inquiries_.trouble()) say(*trouble + "; asking again");
}

void RunShell::ask_controller() {
  if (!controller_) return;
  if (auto order = controller_->look(machine_, Clock::now())) feed(*std::move(order));
  if (auto news = controller_->news()) say(*news);
}

void RunShell::feed(Input input) {
  std::vector<Input> inputs;
  inputs.push_back(std::move(input));
  feed(std::move(inputs));
}

void RunShell::feed(std::vector<Input> inputs) {
  inbox_.insert(inbox_.end(), std::make_move_iterator(inputs.begin()),
                std::make_move_iterator(inputs.end()));
  for (;;) {
    std::vector<Input> answers;
    for (const Action& action : machine_.actions())
      for (Input& answer : carry_out(action)) answers.push_back(std::move(answer));
    // They come before all other inputs that wait.
    inbox_.insert(inbox_.begin(), std::make_move_iterator(answers.begin()),
                  std::make_move_iterator(answers.end()));
    if (inbox_.empty()) return;
    const Input input = std::move(inbox_.front());
    inbox_.pop_front();
    machine_.take(input, Clock::now());
  }
}

std::vector<Input> RunShell::carry_out(const Action& action) {
  if (std::holds_alternative<action::StartRanks>(action)) inquiries_.ranks_start();
  return std::visit(
      [this](const auto& what) {
        if constexpr (requires { processes_->act(what); })
          return processes_->act(what);
        else if constexpr (requires { inquiries_.act(what, machine_.run().job); })
          return inquiries_.act(what, machine_.run().job);
        else
          return act(what);
      },
      action);
}

std::vector<Input> RunShell::act(const action::Say& what) {
  say(what.text);
  return {};
}

std::vector<Input> RunShell::act(const action::Record& what) {
  JobEvent event = what.event;
  if (event.time == 0) event.time = wall_clock();
  log_->add(event);
  return {};
}

std::vector<Input> RunShell::act(const action::Reply& what) {
  if (what.client == ControllerLink::kClient && controller_)
    controller_->take_reply(what.text);
  else
    control_->send(what.client, what.text);
  return {};
}

std::vector<Input> RunShell::act(const action::PlanNextStart& plan) {
  marker_.plan(plan.gpus);
  OrderedBatch ordered = context_.ordered;
  if (plan.batch && plan.batch_at)
    ordered.planned = {*plan.batch, *plan.batch_at};
  else if (plan.batch)
    ordered = {plan.batch};
  // A record that is not used stays as it is, for its user to look at.
  if (ordered == recorded_) return {};
  if (Status status = BatchRecord(context_.checkpoint_dir, context_.access).write(ordered); !status)
    return {input::BatchNotRecorded{status.error().text}};
  recorded_ = ordered;
  return {};
}

std::vector<Input> RunShell::act(const action::LeaveFinished&) {
  if (!finished_.leave()) marker_.remove();
  return {};
}

std::vector<Input> RunShell::act(const action::RemoveMarker&) {
  marker_.remove();
  return {};
}

std::vector<Input> RunShell::act(const action::Exit&) {
  processes_->let_go();
  if (const std::size_t left = log_->close(kHistoryWithin); left > 0)
    say(fmt::format("{} lines of the history of this job could not be written", left));
  return {};
}

}  // namespace bellows
