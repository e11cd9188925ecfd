// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/step_processes.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "common/own_process.h"
#include "common/variables.h"
#include "launcher/ranks/rank_command.h"
#include "launcher/ranks/rank_processes.h"
#include "launcher/slurm/step_environment.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

/// There may be nobody who reads their output.
constexpr auto kLastWordsWithin = 500ms;
/// The relay drops what nobody reads for 10 s on each of the two streams, and then continues to
/// read.
constexpr auto kDoubtsWithin = 25s;
constexpr auto kLetGoWithin = 3s;
/// A shell's status for a command that could not be started.
constexpr ChildExit kNotStarted{127 << 8};

}  // namespace

StepProcesses::StepProcesses(const RunContext& context, const FinishedFile& finished,
                             OutputRelay& output, std::uint32_t restart)
    : context_(context), finished_(finished), output_(output), restart_(restart) {}

void StepProcesses::add_poll(std::vector<pollfd>& fds) const {
  if (agents_) agents_->add_poll(fds);
}

void StepProcesses::hear_agents(std::vector<Input>& news) {
  if (!agents_) return;
  for (Event& event : agents_->exchange()) news.push_back(input::AgentSays{std::move(event)});
  for (const std::string& line : agents_->take_errors()) output_.say(line);
  if (!agents_->open() && !std::exchange(told_closed_, true)) news.push_back(input::AgentsClosed{});
  if (agents_->loss().empty() || std::exchange(told_loss_, true)) return;
  news.push_back(input::AgentLost{agents_->loss(), agents_->end(), agents_->lost_node()});
}

void StepProcesses::read_errors(std::vector<Input>& news) {
  const OutputRelay::Errors errors = output_.take_errors();
  for (const std::string& line : errors.ranks) news.push_back(input::RankWords{line});
  for (const std::string& line : errors.slurm) news.push_back(input::SrunLine{line});
}

std::vector<Input> StepProcesses::words() {
  std::vector<Input> news;
  hear_agents(news);
  read_errors(news);
  return news;
}

bool StepProcesses::ranks_gone(Clock::time_point now) {
  if (!ranks_ || ranks_gone_ || !ranks_->poll_exit()) return false;
  ranks_gone_ = now;
  return true;
}

// Status 0 proves nothing until srun's last output has been read; any other status is sufficient.
std::vector<Input> StepProcesses::end_of_ranks(Clock::time_point now) {
  if (!ranks_ || !ranks_gone_ || told_ranks_ended_) return {};
  const ChildExit exit = *ranks_->poll_exit();
  const bool first = now == *ranks_gone_;
  // After a failure, they say what caused it.
  const auto limit = exit.ok() ? kLastWordsWithin : 2 * kLastWordsWithin;
  const bool settled = output_.settle(first ? limit : 0ms);
  if (!settled && exit.ok() && now - *ranks_gone_ <= kDoubtsWithin) {
    if (first)
      output_.say(
          "bellows run: waiting for the rest of srun's output: nobody reads the output of this "
          "job");
    return {};
  }
  told_ranks_ended_ = true;
  std::vector<Input> news;
  read_errors(news);
  news.push_back(input::RanksEnded{exit, finished_.found()});
  return news;
}

std::vector<Input> StepProcesses::ends() {
  std::vector<Input> news;
  if (agents_ && !told_agents_ended_ && agents_->child().poll_exit()) {
    told_agents_ended_ = true;
    hear_agents(news);
    news.push_back(input::AgentsEnded{*agents_->child().poll_exit(), agents_->end()});
  }
  if (own_command_ && own_command_->poll_exit()) {
    const ChildExit exit = *own_command_->poll_exit();
    own_command_.reset();
    news.push_back(input::OwnCommandEnded{exit, finished_.found()});
  }
  return news;
}

void StepProcesses::dismiss() {
  if (!agents_ || agents_->child().in() < 0) return;
  agents_->send({command::Quit{}});
  agents_->close();
}

// A step whose srun was killed lingers for seconds, and holds up the job's next start.
void StepProcesses::let_go() {
  dismiss();
  for (const auto limit = Clock::now() + kLetGoWithin; Clock::now() < limit;) {
    std::vector<Input> dropped;
    hear_agents(dropped);
    const bool ranks_over = !ranks_ || ranks_->poll_exit();
    const bool agents_over = !agents_ || agents_->child().poll_exit();
    if (ranks_over && agents_over) break;
    std::this_thread::sleep_for(20ms);
  }
  if (ranks_ && ranks_->poll_exit()) output_.settle(kLastWordsWithin);
  own_command_.reset();
  ranks_.reset();
  agents_.reset();
}

std::vector<Input> StepProcesses::act(const action::StartAgents& start) {
  AgentLink::Options options{context_.program, context_.agent_socket(), start.step_name,
                             host_step_environment(environ)};
  auto agents = AgentLink::start(start.layout, options);
  if (!agents) return {input::AgentsNotStarted{agents.error().text}};
  agents_.emplace(std::move(*agents));
  told_loss_ = told_closed_ = told_agents_ended_ = false;
  return {};
}

std::vector<Input> StepProcesses::act(const action::SendAgents& send) {
  if (agents_) agents_->send(send.command);
  return {};
}

std::vector<Input> StepProcesses::act(const action::DismissAgents&) {
  dismiss();
  return {};
}

std::vector<Input> StepProcesses::act(const action::SignalAgents& signal) {
  if (agents_) agents_->child().signal(signal.signal);
  return {};
}

std::vector<Input> StepProcesses::act(const action::DropAgents&) {
  agents_.reset();
  return {};
}

std::vector<Input> StepProcesses::act(const action::StartRanks& start) {
  ChildOptions child;
  const RankCommand command{context_.launch, context_.options.cpu_bind, start.layout};
  const bool served = context_.launch == LaunchKind::ps;
  child.command =
      command.words(start.step_name,
                    served ? param_server_command(context_.options.server, context_.server_socket(),
                                                  start.layout, context_.options.command)
                           : context_.options.command);
  child.environment = command.environment(environ, context_.agent_socket(), start.rendezvous);
  if (served) add_to_path(child.environment, std::filesystem::path(context_.program).parent_path());
  child.environment.push_back(
      fmt::format("{}={}", kAttemptVariable, context_.run.attempt(start.attempt)));
  child.environment.push_back("BELLOWS_FINISHED_FILE=" + finished_.path());
  for (std::string& variable :
       batch_variables(context_.contract, context_.ordered.at(start.layout.gpus())))
    child.environment.push_back(std::move(variable));
  // srun then takes its tasks down; the agents' srun ends by itself at the end of its input.
  child.death_signal = SIGTERM;
  child.pipe_out = child.pipe_err = true;
  auto ranks = Child::start(child);
  if (!ranks) return {input::RanksNotStarted{ranks.error().text}};
  ranks_.emplace(std::move(*ranks));
  ranks_gone_.reset();
  told_ranks_ended_ = false;
  output_.attach(restart_, start.attempt, ranks_->take_out(), ranks_->take_err());
  return {input::RanksStarted{}};
}

std::vector<Input> StepProcesses::act(const action::SignalRanks& signal) {
  if (ranks_) ranks_->signal(signal.signal);
  return {};
}

// The last lines that srun wrote say why they ended.
std::vector<Input> StepProcesses::act(const action::DropRanks&) {
  if (!ranks_) return {};
  if (ranks_->poll_exit()) output_.settle(kLastWordsWithin);
  std::vector<Input> news;
  read_errors(news);
  ranks_.reset();
  return news;
}

std::vector<Input> StepProcesses::act(const action::KillRanksHere& kill) {
  kill_ranks_here(kill.attempt);
  return {};
}

std::vector<Input> StepProcesses::act(const action::StartOwnCommand& start) {
  ChildOptions child;
  child.command = {"sh", "-c", start.command};
  child.environment = own_environment();
  child.death_signal = SIGTERM;
  auto command = Child::start(child);
  if (!command) return {input::OwnCommandEnded{kNotStarted}};
  own_command_.emplace(std::move(*command));
  return {};
}

std::vector<Input> StepProcesses::act(const action::DropOwnCommand&) {
  own_command_.reset();
  return {};
}

}  // namespace bellows
