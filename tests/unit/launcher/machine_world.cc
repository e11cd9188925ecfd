// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/machine_world.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "launcher/ranks/rank_command.h"

namespace bellows {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kWorld = 4;
const std::vector<std::string> kNodes = {"n1", "n2"};

const std::string& node_of(std::uint32_t rank) { return kNodes[rank / 2]; }

}  // namespace

RunRules MachineWorld::rules() {
  RunRules rules;
  rules.run = {7, 0, 100, "r"};
  rules.checkpoint_dir = rules.trusted_base = "/ckpt";
  return rules;
}

SlurmJob MachineWorld::job() {
  SlurmJob job;
  job.id = 7;
  job.state = SlurmState::running;
  job.partition = "main";
  job.kind.batch = job.kind.may_requeue = true;
  job.asked.num_tasks = kWorld;
  job.nodes = {{"n1", 2, 2}, {"n2", 2, 2}};
  job.times.start = 900;
  job.times.submit = 100;
  return job;
}

MachineWorld::MachineWorld(const RunRules& how, const SlurmJob& what)
    : machine(how, what, *RankLayout::of(what), std::nullopt),
      record(what),
      told_nodes_(what.nodes.size()) {}

void MachineWorld::must(bool holds, const char* what) {
  if (!holds && broken.empty()) broken = what;
}

std::vector<SlurmStep> MachineWorld::steps() const {
  std::vector<SlurmStep> steps;
  const std::string number = std::to_string(machine.run().attempt.number);
  if (ranks_live && steps_are_made) steps.push_back({1, "bellows-ranks-" + number});
  for (const std::string& name : lingering) steps.push_back({2, name});
  return steps;
}

void MachineWorld::serve_agents(const Action& action, std::vector<Input>& answers) {
  if (std::get_if<action::StartAgents>(&action)) {
    must(!agents, "agents are started beside others");
    ++agent_starts;
    if (!agents_start) return answers.push_back(input::AgentsNotStarted{"no srun"});
    agents = agents_open = true;
  } else if (const auto* send = std::get_if<action::SendAgents>(&action)) {
    must(agents, "agents that are not there are told something");
    commands.push_back(send->command);
  } else if (std::get_if<action::DismissAgents>(&action)) {
    agents_open = false;
  } else if (std::get_if<action::DropAgents>(&action)) {
    agents = agents_open = false;
  } else if (const auto* told = std::get_if<action::SignalAgents>(&action)) {
    agent_signals.push_back(told->signal);
  }
}

void MachineWorld::serve_ranks(const Action& action, std::vector<Input>& answers) {
  if (const auto* start = std::get_if<action::StartRanks>(&action)) {
    ranks_nodes_ = start->layout.nodes().size();
    must(!ranks && !ranks_live, "ranks are started beside others");
    must(std::none_of(lingering.begin(), lingering.end(),
                      [](const std::string& name) { return name.starts_with(kRanksStep); }),
         "ranks are started beside a step of ranks that has not ended");
    must(agents, "ranks are started without agents");
    ++rank_starts;
    killed_ = false;
    if (!ranks_start) return answers.push_back(input::RanksNotStarted{"no srun"});
    ranks = ranks_live = true;
    answers.push_back(input::RanksStarted{});
  } else if (const auto* hit = std::get_if<action::SignalRanks>(&action)) {
    rank_signals.push_back(hit->signal);
    killed_ |= hit->signal == SIGKILL;
  } else if (std::get_if<action::DropRanks>(&action)) {
    must(!ranks_live || killed_, "ranks are given up that have neither ended nor been killed");
    ranks = ranks_live = false;
  } else if (std::get_if<action::StartOwnCommand>(&action)) {
    must(!own_command, "two checkpoint commands run");
    own_command = true;
  } else if (std::get_if<action::DropOwnCommand>(&action)) {
    own_command = false;
  }
}

void MachineWorld::serve_slurm(const Action& action, std::vector<Input>& answers) {
  if (std::get_if<action::LookAround>(&action)) {
    answers.push_back(around);
  } else if (std::get_if<action::LookAtSteps>(&action)) {
    if (slurm_silent)
      answers.push_back(input::StepsLook{Error{ErrorKind::unavailable, "silent"}});
    else
      answers.push_back(input::StepsLook{steps()});
  } else if (const auto* signal = std::get_if<action::SignalStep>(&action)) {
    step_signals.push_back(signal->signal);
    if (step_signalled) killed_ |= signal->signal == SIGKILL;
    answers.push_back(input::StepSignalled{step_signalled});
  } else if (std::get_if<action::FindStepBelow>(&action)) {
    answers.push_back(input::StepOnDisk{step_below});
  } else if (std::get_if<action::CountFruitlessRuns>(&action)) {
    answers.push_back(input::FruitlessRuns{fruitless_runs});
  } else if (const auto* walk = std::get_if<action::WalkRoad>(&action)) {
    must(!ranks_live || killed_ || stop.kept() || stop.job_is_over(),
         "the job is requeued before a commit while its ranks are at work");
    must(roads.empty(), "the job is requeued twice");
    roads.push_back(walk->next);
    answers.push_back(input::RoadDone{road});
  }
}

void MachineWorld::serve_people(const Action& action, std::vector<Input>& answers) {
  if (const auto* text = std::get_if<action::Say>(&action)) {
    said.push_back(text->text);
  } else if (const auto* line = std::get_if<action::Record>(&action)) {
    history.push_back(line->event);
  } else if (const auto* reply = std::get_if<action::Reply>(&action)) {
    replies[reply->client].push_back(reply->text);
  } else if (const auto* plan = std::get_if<action::PlanNextStart>(&action)) {
    planned_size = plan->gpus;
    planned_batch = plan->batch;
    planned_batch_at = plan->batch_at;
    if (plan->batch && disk_full) answers.push_back(input::BatchNotRecorded{"no space"});
  } else if (std::get_if<action::RemoveMarker>(&action)) {
    marker = false;
  } else if (const auto* end = std::get_if<action::Exit>(&action)) {
    exit = end->status;
  }
}

void MachineWorld::carry_out(const Action& action, std::vector<Input>& answers) {
  must(!exit, "something is done after the end");
  if (const char* wrong = stop.note(action, now)) must(false, wrong);
  serve_agents(action, answers);
  serve_ranks(action, answers);
  serve_slurm(action, answers);
  serve_people(action, answers);
}

void MachineWorld::begin() {
  machine.begin(now);
  feed(input::Tick{});
}

void MachineWorld::feed(const Input& input) {
  inbox_.push_back(input);
  for (;;) {
    std::vector<Input> answers;
    for (const Action& action : machine.actions()) {
      carry_out(action, answers);
      const auto* send = std::get_if<action::SendAgents>(&action);
      if (send && kind_) obey(send->command);
    }
    inbox_.insert(inbox_.begin(), answers.begin(), answers.end());
    if (inbox_.empty()) break;
    const Input next = std::move(inbox_.front());
    inbox_.pop_front();
    stop.hear(next, now);
    if (const auto* look = std::get_if<input::JobLook>(&next); look && look->job)
      told_nodes_ = look->job->nodes.size();
    if (std::holds_alternative<input::RanksGone>(next)) ranks_live = false;
    machine.take(next, now);
  }
  const bool idle = std::holds_alternative<state::Running>(machine.state()) && !ranks;
  must(!idle || machine.run().fault.pending, "the run waits for ranks that are not there");
}

void MachineWorld::pass(std::chrono::milliseconds time) {
  const Time end = now + time;
  while (!exit) {
    const auto wanted = machine.wanted();
    // Not every second of a long time.
    const Time least = now + std::max(1ms, time / 50);
    now = std::clamp(wanted.tick, least, std::max(end, least));
    feed(input::Tick{});
    if (wanted.job && machine.wanted().job && !slurm_silent && !exit) {
      record.times.now = record.times.start + 100;
      feed(input::JobLook{record});
    }
    if (now >= end) return;
  }
}

bool MachineWorld::reaches(const std::function<bool()>& there) {
  int rounds = 0;
  for (const Time end = now + 24h; now < end && rounds < 200'000; ++rounds) {
    if (kind_) be_kind();
    if (there()) return true;
    if (exit) return false;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(machine.wanted().tick - now);
    pass(std::max(1ms, wait));
  }
  return false;
}

void MachineWorld::agents_greet() {
  for (const std::string& node : kNodes) agent({event::Hello{}, node});
}

void MachineWorld::agents_find(std::optional<std::uint64_t> step) {
  agent({event::Found{step}, kNodes[0]});
}

void MachineWorld::agents_ready() {
  for (const std::string& node : kNodes) agent({event::Ready{}, node});
}

void MachineWorld::start_ranks(std::optional<std::uint64_t> step) {
  if (std::holds_alternative<state::Greeting>(machine.state())) agents_greet();
  agents_find(step);
  agents_ready();
}

void MachineWorld::rank(std::uint32_t number, event::Rank::State state) {
  agent({event::Rank{number, state}, node_of(number)});
}

void MachineWorld::join() {
  for (std::uint32_t i = 0; i < kWorld; ++i) rank(i, event::Rank::State::joined);
}

void MachineWorld::start() {
  begin();
  start_ranks();
  join();
}

void MachineWorld::progress(std::uint64_t step) {
  for (const std::string& node : kNodes) {
    event::Progress progress{.max_step = step, .steps = {step, step}};
    progress.ranks =
        node == "n1" ? std::vector<std::uint32_t>{0, 1} : std::vector<std::uint32_t>{2, 3};
    agent({progress, node});
  }
}

void MachineWorld::give_parts(std::uint64_t step) {
  for (std::uint32_t i = 0; i < kWorld; ++i) {
    event::Shard shard{.step = step};
    shard.file.rank = i;
    shard.file.size = 1000;
    agent({shard, node_of(i)});
  }
}

void MachineWorld::commit(std::uint64_t step) { agent({event::Committed{step}, kNodes[0]}); }

void MachineWorld::save(std::uint64_t step) {
  give_parts(step);
  commit(step);
}

template <typename Body>
const Body* MachineWorld::last_sent() const {
  for (auto sent = commands.rbegin(); sent != commands.rend(); ++sent)
    if (const auto* body = std::get_if<Body>(&sent->body)) return body;
  return nullptr;
}

void MachineWorld::answer_gate(std::uint64_t newest) {
  const auto* gate = last_sent<command::SetGate>();
  if (!gate) return;
  const event::Gated answer{gate->id, newest};
  for (const std::string& node : kNodes) agent({answer, node});
}

void MachineWorld::answer_query(std::uint32_t unwritten) {
  const auto* query = last_sent<command::Query>();
  if (!query) return;
  const event::Progress answer{.unwritten = unwritten, .id = query->id};
  for (const std::string& node : kNodes) agent({answer, node});
  feed(input::Tick{});
}

bool MachineWorld::step_may_outlast_srun() const {
  const bool at_work = std::holds_alternative<state::Running>(machine.state());
  return killed_ || told_nodes_ < ranks_nodes_ || (at_work && record.nodes.size() < ranks_nodes_);
}

void MachineWorld::ranks_end(int status, const std::optional<std::string>& finished) {
  if (ranks_live) feed(input::RanksGone{});
  feed(input::RanksEnded{ChildExit{status << 8}, finished});
  feed(input::Tick{});
}

void MachineWorld::ranks_killed(int signal) {
  feed(input::RanksGone{});
  feed(input::RanksEnded{ChildExit{signal}});
}

void MachineWorld::own_command_ends(int status) {
  own_command = false;
  feed(input::OwnCommandEnded{ChildExit{status << 8}});
  feed(input::Tick{});
}

void MachineWorld::agents_end(int status) {
  feed(input::AgentsEnded{ChildExit{status << 8}, "the agents ended"});
}

void MachineWorld::agent_lost(const std::string& loss, const std::string& node) {
  feed(input::AgentLost{loss, loss, node});
}

void MachineWorld::obey(const Command& command) {
  const auto say = [this](const std::string& node, Event::Body body) {
    inbox_.push_back(input::AgentSays{{std::move(body), node}});
  };
  for (const std::string& node : kNodes) {
    if (const auto* query = std::get_if<command::Query>(&command.body))
      say(node, event::Progress{.id = query->id});
    if (const auto* gate = std::get_if<command::SetGate>(&command.body)) {
      if (gate->step)
        say(node, event::Gated{gate->id});
      else
        say(node, event::Progress{.id = gate->id});
    }
  }
  if (const auto* commit = std::get_if<command::Commit>(&command.body))
    say(kNodes[0], event::Committed{commit->step});
}

// One thing at a time, as it would come.
void MachineWorld::be_kind() {
  if (std::holds_alternative<state::Greeting>(machine.state()) && agents) return agents_greet();
  if (std::holds_alternative<state::Finding>(machine.state())) return agents_find(std::nullopt);
  if (std::holds_alternative<state::Restoring>(machine.state())) return agents_ready();
  if (ranks) return ranks_end(0);
  if (own_command) {
    return own_command_ends(0);
  }
  if (agents && !agents_open && !machine.run().agents.ended) return agents_end(0);
}

bool MachineWorld::ends_in_a_kind_world() {
  kind_ = true;
  slurm_silent = false;
  agents_start = ranks_start = true;
  step_signalled = {};
  lingering.clear();
  record.state = SlurmState::running;
  record.times.preempt = 0;
  record.nodes = machine.run().job.nodes;
  around = {};
  return reaches([this] { return exit.has_value(); });
}

bool MachineWorld::has_said(const std::string& text) const {
  return std::any_of(said.begin(), said.end(), [&text](const std::string& line) {
    return line.find(text) != std::string::npos;
  });
}

std::string MachineWorld::last() const {
  return history.empty() ? "" : history.back().event + ": " + history.back().cause;
}

std::string MachineWorld::last_reply(std::uint64_t client) const {
  const auto found = replies.find(client);
  return found == replies.end() ? "" : found->second.back();
}

}  // namespace bellows
