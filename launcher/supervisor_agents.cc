// SPDX-License-Identifier: Apache-2.0
// Supervisor's dealings with its agents: what they still write, and their end.
#include <algorithm>

#include "launcher/exit_status.h"
#include "launcher/supervisor.h"

namespace bellows {

using namespace std::chrono_literals;

std::vector<Event> Supervisor::hear_agents() {
  if (!agents_) return {};
  std::vector<Event> events = agents_->exchange();
  for (const std::string& line : agents_->take_errors()) output_->say(line);
  return events;
}

void Supervisor::read_agents() {
  for (const Event& event : hear_agents()) handle_agent_event(event);
  if (agent_lost() && agents_well_) agent_died();
}

void Supervisor::agent_died() {
  agents_well_ = false;
  // Ranks that died of it may have been noticed first.
  const bool noticed = fault_pending_ || (phase_ == Phase::draining && next_ == Next::restart);
  if (noticed && blame_ == Blame::program) {
    say(agents_->loss());
    cause_ = agents_->loss();
    hang_called_ = false;
  }
  const bool starting =
      phase_ == Phase::greeting || phase_ == Phase::finding || phase_ == Phase::restoring;
  if (starting || phase_ == Phase::running)
    fault(agents_->loss(), starting ? Blame::cluster : Blame::program, kFailed);
}

// The ranks have ended: what they had given to the agents may still become checkpoints.
void Supervisor::drain(Phase phase) {
  unwritten_.clear();
  last_save_news_ = Clock::now();
  Command query;
  query.kind = Command::Kind::query;
  query.id = ++last_query_;
  agents_->send(query);
  enter(phase, 200ms);
}

// What an agent says by itself may be older than the ranks' end.
void Supervisor::note_unwritten(const Event& event) {
  if (event.id == last_query_ || unwritten_.contains(event.node))
    unwritten_[event.node] = event.unwritten;
  // Of a commit that a slow file system holds up there is no other sign.
  if (event.unwritten > 0 || event.busy) last_save_news_ = Clock::now();
}

// Looks as soon as there is news: nobody waits for a tick to go by.
void Supervisor::end_drain() {
  bool draining = phase_ == Phase::judging || phase_ == Phase::draining;
  if (draining && drained()) deadline_ = Clock::now();
}

bool Supervisor::drained() const {
  // A dead agent answers nothing, and what waits for its part waits in vain.
  if (agent_lost()) return saving_.empty() || Clock::now() - last_save_news_ > 1s;
  bool writing = std::any_of(unwritten_.begin(), unwritten_.end(),
                             [](const auto& node) { return node.second > 0; });
  bool over = unwritten_.size() >= layout_.nodes().size() && !writing && saving_.empty();
  return over || Clock::now() - last_save_news_ > 3s;
}

void Supervisor::dismiss_agents() {
  if (!agents_ || agents_->child().in() < 0) return;
  Command quit;
  quit.kind = Command::Kind::quit;
  agents_->send(quit);
  agents_->close();
}

}  // namespace bellows
