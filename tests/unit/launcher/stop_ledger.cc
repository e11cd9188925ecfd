// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/stop_ledger.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bellows {
namespace {

using namespace std::chrono_literals;

// How long a run waits for agents that are silent, as its manual page says.
constexpr auto kNewsWithin = 3s;
constexpr auto kNewsOfOthersWithin = 2500ms;
/// Ranks that do not advance for so long may be taken for hung: RunRules::hang_floor.
constexpr auto kMayHang = 300s;
/// Agents that take so long to begin are a fault, even when they come after all.
constexpr auto kMayBeLate = 60s;

}  // namespace

bool StopLedger::kept() const {
  return promised_ && committed_.lower_bound(*promised_) != committed_.end();
}

/// All ranks gave their parts of the promised step, or of a later one, which may be committed yet.
bool StopLedger::is_complete() const {
  return std::any_of(parts_.lower_bound(*promised_), parts_.end(), [this](const auto& step) {
    return world_ > 0 && step.second.size() >= world_;
  });
}

/// The ranks have ended, and the agents have nothing left that could keep the promise.
bool StopLedger::is_settled() const {
  if (!query_ || is_complete()) return false;
  if (lost_) return true;
  const bool writing = std::any_of(unwritten_.begin(), unwritten_.end(),
                                   [](const auto& node) { return node.second > 0; });
  return unwritten_.size() >= nodes_ && !writing;
}

bool StopLedger::may_leave() const {
  return !is_outstanding() || over_ || excused_ || is_settled();
}

bool StopLedger::hear_event(const std::string&, const event::Shard& shard) {
  const auto failed = failed_.find(shard.step);
  if (!closed_ && (failed == failed_.end() || shard.id >= failed->second))
    parts_[shard.step].insert(shard.file.rank);
  return true;
}

bool StopLedger::hear_event(const std::string&, const event::Committed& committed) {
  committed_.insert(committed.step);
  if (parts_.erase(committed.step) > 0)
    failed_.erase(failed_.begin(), failed_.upper_bound(committed.step));
  return true;
}

bool StopLedger::hear_event(const std::string& node, const event::Progress& progress) {
  if (!closed_ && (progress.id == query_ || unwritten_.contains(node)))
    unwritten_[node] = progress.unwritten;
  return progress.unwritten > 0 || progress.busy;
}

bool StopLedger::hear_event(const std::string&, const event::CommandFailed& failed) {
  const bool gate = failed.cmd == "gate" || failed.cmd == "stop";
  fault_ |= failed.cmd != "commit" && failed.cmd != "retention" && (gated_ || !gate);
  return true;
}

bool StopLedger::hear_event(const std::string&, const event::RestoreError&) {
  fault_ = true;
  return false;
}

void StopLedger::hear(const Input& input, Time now) {
  const auto limit = lost_ ? std::chrono::milliseconds(kNewsOfOthersWithin) : kNewsWithin;
  excused_ |= query_ && !closed_ && now - news_ > limit;
  if (std::holds_alternative<input::Paused>(input)) news_ = now;
  fault_ |= std::holds_alternative<input::SrunLine>(input);
  if (const auto* look = std::get_if<input::JobLook>(&input); look && look->job) {
    const SlurmState state = look->job->state;
    over_ = state != SlurmState::running && state != SlurmState::suspended;
    if (!over_) nodes_ = std::min(nodes_, look->job->nodes.size());
  }
  if (!agents_) return;
  if (const auto* said = std::get_if<input::AgentSays>(&input)) {
    const Event& event = said->event;
    if (std::visit([&](const auto& what) { return hear_event(event.node, what); }, event.body))
      news_ = now;
  }
  if (std::holds_alternative<input::AgentLost>(input)) lost_ = fault_ = true;
  if (!std::holds_alternative<input::AgentsEnded>(input)) return;
  fault_ = true;
  excused_ |= !closed_;
}

const char* StopLedger::promise(std::uint64_t step) {
  if (promised_ && *promised_ != step) return "two different steps are promised for one stop";
  promised_ = step;
  return nullptr;
}

const char* StopLedger::note_sent(const Command& command, Time now) {
  gated_ |= std::holds_alternative<command::SetGate>(command.body);
  if (const auto* stop = std::get_if<command::SetStop>(&command.body)) return promise(stop->step);
  if (const auto* failed = std::get_if<command::Failed>(&command.body)) {
    parts_.erase(failed->step);
    failed_[failed->step] = failed->id;
  } else if (const auto* query = std::get_if<command::Query>(&command.body)) {
    query_ = query->id;
    unwritten_.clear();
    news_ = now;
    excused_ = false;
  }
  return nullptr;
}

// Whoever is told of the end of a stop requeues the job at once.
const char* StopLedger::note_reply(const std::string& text) {
  const auto reply = nlohmann::json::parse(text);
  if (reply.value("event", "") == "stopping" && reply["step"].is_number())
    return promise(reply["step"]);
  if (reply.value("event", "") != "committed") return nullptr;
  if (is_outstanding() && !reply.contains("unsaved"))
    return "a client is told of a commit that has not come";
  return may_leave() ? nullptr : "a client is sent to requeue the job before the promised commit";
}

void StopLedger::begin_ranks(const RankLayout& layout, Time now) {
  parts_.clear();
  failed_.clear();
  committed_.clear();
  query_.reset();
  unwritten_.clear();
  excused_ = false;
  world_ = layout.world();
  nodes_ = layout.nodes().size();
  fault_ |= now - begun_ >= kMayBeLate;
  begun_ = now;
}

const char* StopLedger::note(const Action& action, Time now) {
  if (const auto* start = std::get_if<action::StartRanks>(&action)) {
    if (promised_) return "ranks are started again after a stop was promised";
    begin_ranks(start->layout, now);
  } else if (std::get_if<action::LookAround>(&action)) {
    fault_ = gated_ = false;
    begun_ = now;
  } else if (std::get_if<action::StartAgents>(&action)) {
    agents_ = true;
    closed_ = lost_ = false;
  } else if (const auto* send = std::get_if<action::SendAgents>(&action)) {
    return note_sent(send->command, now);
  } else if (std::get_if<action::KillRanksHere>(&action)) {
    fault_ = true;
  } else if (std::get_if<action::SignalRanks>(&action)) {
    const bool hung = now - begun_ >= kMayHang;
    if (is_outstanding() && !query_ && !closed_ && !fault_ && !hung)
      return "ranks are ended that were promised a stop";
    // The stop is then for a fault that Slurm has confirmed.
    excused_ |= !query_ && !closed_;
  } else if (std::get_if<action::DismissAgents>(&action) ||
             std::get_if<action::SignalAgents>(&action)) {
    closed_ = true;
  } else if (std::get_if<action::DropAgents>(&action)) {
    closed_ = true;
    agents_ = false;
  } else if (const auto* reply = std::get_if<action::Reply>(&action)) {
    return note_reply(reply->text);
  } else if (std::get_if<action::WalkRoad>(&action) && !may_leave()) {
    return "the job is requeued before the promised commit";
  }
  return nullptr;
}

}  // namespace bellows
