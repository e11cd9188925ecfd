// SPDX-License-Identifier: Apache-2.0
// Supervisor's dealings with its agents: what they still write, and their end.
#include "launcher/base/exit_status.h"
#include "launcher/run/supervisor.h"

namespace bellows {

namespace {

using namespace std::chrono_literals;

/// Between the end of the ranks that failed for an agent and srun's word of that agent.
constexpr auto kDiesWithRanks = 5s;

}  // namespace

std::vector<Event> Supervisor::hear_agents() {
  if (!agents_) return {};
  std::vector<Event> events = agents_->exchange();
  for (const std::string& line : agents_->take_errors()) output_->say(line);
  return events;
}

void Supervisor::read_agents() {
  for (const Event& event : hear_agents()) handle_agent_event(event);
  if (agent_lost() && !agent_death_noted_) agent_died();
}

void Supervisor::agent_died() {
  const bool node_lost = !agents_->lost_node().empty();
  agents_well_ = false;
  agent_death_noted_ = true;
  // Ranks that died of it may have been noticed first; it may also come long after their end. An
  // agent that said why it fails knew more than srun does.
  const bool noticed = fault_pending_ || (phase_ == Phase::draining && next_ == Next::restart);
  const bool at_once = Clock::now() - faulted_ < kDiesWithRanks;
  if (noticed && at_once && blame_ == Blame::program && !agent_said_why_) {
    say(agents_->loss());
    cause_ = agents_->loss();
    if (node_lost) blame_ = Blame::cluster;
  }
  // Ranks that go on after all have no agent now.
  if (noticed) hang_called_ = false;
  if (beginning() || phase_ == Phase::running)
    fault(agents_->end(), beginning() || node_lost ? Blame::cluster : Blame::program, kFailed);
}

// The ranks have ended: what they had given to the agents may still become checkpoints.
void Supervisor::drain(Phase phase) {
  Command query;
  query.kind = Command::Kind::query;
  query.id = saves_.begin_drain(Clock::now());
  agents_->send(query);
  enter(phase, 200ms);
}

// Looks as soon as there is news: nobody waits for a tick to go by.
void Supervisor::end_drain() {
  bool draining = phase_ == Phase::judging || phase_ == Phase::draining;
  if (draining && drained()) deadline_ = Clock::now();
}

bool Supervisor::drained() const {
  return agent_lost() ? saves_.drained_without_agent(Clock::now())
                      : saves_.drained(layout_.nodes().size(), Clock::now());
}

void Supervisor::dismiss_agents() {
  if (!agents_ || agents_->child().in() < 0) return;
  Command quit;
  quit.kind = Command::Kind::quit;
  agents_->send(quit);
  agents_->close();
}

}  // namespace bellows
