// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/wire/wire.h"

namespace bellows {
namespace {

void append(std::vector<Command>* to, std::vector<Command> more) {
  for (Command& c : more) to->push_back(std::move(c));
}

}  // namespace

std::vector<Command> Coordinator::handle(const Event::Body& event) {
  return std::visit([this](const auto& said) { return take(said); }, event);
}

std::vector<Command> Coordinator::take(const event::SaveError& failed) {
  if (is_stale(failed.step, failed.id)) return {};
  return fail(failed.step, failed.error);
}

std::vector<Command> Coordinator::take(const event::CommandFailed& failed) {
  if (failed.cmd != "commit" || !failed.step) return {};
  return fail(*failed.step, failed.error);
}

// A failure is said even when no shard of the step has come yet: the rank that met it waits.
std::vector<Command> Coordinator::fail(std::uint64_t step, const Error& why) {
  pending_.erase(step);
  failed_[step] = ++failures_;
  std::vector<Command> out = {Command{command::Failed{step, failures_, why}}};
  append(&out, commit_next());
  return out;
}

std::vector<Command> Coordinator::take(const event::Committed& committed) {
  const std::uint64_t step = committed.step;
  if (pending_.erase(step) == 0) return {};
  committed_ = step;
  // Every rank gave this step, and so has heard what became of those before.
  failed_.erase(failed_.begin(), failed_.upper_bound(step));
  std::vector<Command> out = {Command{command::Committed{step}}};
  append(&out, commit_next());
  return out;
}

// Sent before its agent heard that the step had failed; the agent has told, or will tell, that
// rank.
bool Coordinator::is_stale(std::uint64_t step, std::uint64_t last_heard) const {
  const auto failed = failed_.find(step);
  return failed != failed_.end() && last_heard < failed->second;
}

std::vector<Command> Coordinator::take(const event::Shard& shard) {
  if (is_stale(shard.step, shard.id)) return {};
  Pending& pending = pending_[shard.step];
  if (pending.committing) return {};
  pending.shards[shard.file.rank] = shard.file;
  std::vector<Command> out = check_ranks();
  append(&out, commit_next());
  return out;
}

// A step may be complete while the leader still commits the one before.
std::vector<Command> Coordinator::commit_next() {
  if (pending_.empty()) return {};
  const std::uint64_t step = pending_.begin()->first;
  Pending& first = pending_.begin()->second;
  if (first.committing || first.shards.size() < world_) return {};
  first.committing = true;
  command::Commit commit{step};
  for (const auto& [rank, shard] : first.shards) commit.shards.push_back(shard);
  return {Command{std::move(commit)}};
}

std::vector<std::uint64_t> Coordinator::pending() const {
  std::vector<std::uint64_t> out;
  for (const auto& [step, one] : pending_) out.push_back(step);
  return out;
}

std::vector<Command> Coordinator::take(const event::Rank& rank) {
  if (rank.state == event::Rank::State::joined) {
    gone_.erase(rank.rank);
    return {};
  }
  gone_[rank.rank] = rank.state;
  return check_ranks();
}

// Why the ranks can't mean the same steps, or nothing.
std::optional<std::string> Coordinator::skipped() const {
  for (auto earlier = pending_.begin(); earlier != pending_.end(); ++earlier) {
    for (auto later = std::next(earlier); later != pending_.end(); ++later) {
      for (const auto& [rank, shard] : later->second.shards) {
        if (earlier->second.shards.contains(rank)) continue;
        return fmt::format("the ranks save different steps: {} and {}", earlier->first,
                           later->first);
      }
    }
  }
  return {};
}

// A step waits for nothing when a rank without a shard of it is gone or has skipped it. Once ranks
// disagree about the steps, no incomplete save may continue: of two ranks that wait in save, each
// for another step, neither would ever come to the other's.
std::vector<Command> Coordinator::check_ranks() {
  const std::optional<std::string> disagreement = skipped();
  std::map<std::uint64_t, std::string> failures;
  for (const auto& [step, pending] : pending_) {
    if (pending.shards.size() >= world_) continue;
    if (disagreement) failures[step] = *disagreement;
    for (const auto& [rank, state] : gone_) {
      if (disagreement || pending.shards.contains(rank)) continue;
      const char* how = state == event::Rank::State::lost ? "was lost" : "has finished";
      failures[step] = fmt::format("step {} cannot be saved: rank {} {} before it stored its part",
                                   step, rank, how);
      break;
    }
  }
  std::vector<Command> out;
  for (const auto& [step, why] : failures) {
    const ErrorKind kind = disagreement ? ErrorKind::invalid : ErrorKind::unavailable;
    append(&out, fail(step, Error{kind, why}));
  }
  return out;
}

StopDecision::StopDecision(std::uint32_t agents, std::optional<std::uint64_t> newest,
                           std::uint64_t margin)
    : agents_(agents),
      margin_(std::max<std::uint64_t>(margin, 1)),
      gate_(newest.value_or(0) + margin_) {
  gate_ = std::min(gate_, wire::kNoStep - 1);
}

command::SetGate StopDecision::gate() {
  most_ = 0;
  answered_.clear();
  return {gate_, ++id_};
}

std::vector<Command> StopDecision::handle(const std::string& node, const event::Gated& gated) {
  if (gated.id != id_ || decided_) return {};
  answered_.insert(node);
  if (gated.max_step) most_ = std::max(most_, *gated.max_step);
  if (answered_.size() < agents_) return {};
  // A rank that had published the gate's own step may have looked before the gate was there.
  if (most_ >= gate_) {
    gate_ = std::min(most_ + margin_, wire::kNoStep - 1);
    margin_ *= 2;
    return {Command{gate()}};
  }
  decided_ = gate_;
  return {Command{command::SetStop{gate_}}};
}

}  // namespace bellows
