// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/protocol/coordinator.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/wire/wire.h"

namespace bellows {
namespace {

Command step_command(Command::Kind kind, std::uint64_t step) {
  Command c;
  c.kind = kind;
  c.step = step;
  return c;
}

void append(std::vector<Command>* to, std::vector<Command> more) {
  for (Command& c : more) to->push_back(std::move(c));
}

}  // namespace

std::vector<Command> Coordinator::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::shard:
      return take_shard(event);
    case Event::Kind::save_error:
      if (is_stale(event)) return {};
      return fail(*event.step, event.error_kind, event.error);
    case Event::Kind::rank:
      return take_rank(event);
    case Event::Kind::committed:
      return take_committed(*event.step);
    case Event::Kind::error:
      if (event.cmd != "commit" || !event.step) return {};
      return fail(*event.step, event.error_kind, event.error);
    default:
      return {};
  }
}

// A failure is said even when no shard of the step has come yet: the rank that met it waits.
std::vector<Command> Coordinator::fail(std::uint64_t step, ErrorKind kind, const std::string& why) {
  pending_.erase(step);
  Command c = step_command(Command::Kind::failed, step);
  c.error = why;
  c.error_kind = kind;
  c.id = ++failures_;
  failed_[step] = failures_;
  std::vector<Command> out = {c};
  append(&out, commit_next());
  return out;
}

std::vector<Command> Coordinator::take_committed(std::uint64_t step) {
  if (pending_.erase(step) == 0) return {};
  committed_ = step;
  // Every rank gave this step, and so has heard what became of those before.
  failed_.erase(failed_.begin(), failed_.upper_bound(step));
  std::vector<Command> out = {step_command(Command::Kind::committed, step)};
  append(&out, commit_next());
  return out;
}

// Sent before its agent heard that the step had failed; the agent has told, or will tell, that
// rank.
bool Coordinator::is_stale(const Event& event) const {
  const auto failed = failed_.find(*event.step);
  return failed != failed_.end() && event.id < failed->second;
}

std::vector<Command> Coordinator::take_shard(const Event& event) {
  if (is_stale(event)) return {};
  Pending& pending = pending_[*event.step];
  if (pending.committing) return {};
  ShardFile shard = event.shard;
  shard.rank = event.rank;
  pending.shards[event.rank] = shard;
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
  Command c = step_command(Command::Kind::commit, step);
  for (const auto& [rank, shard] : first.shards) c.shards.push_back(shard);
  return {c};
}

std::vector<std::uint64_t> Coordinator::pending() const {
  std::vector<std::uint64_t> out;
  for (const auto& [step, one] : pending_) out.push_back(step);
  return out;
}

std::vector<Command> Coordinator::take_rank(const Event& event) {
  if (event.state == "joined") {
    gone_.erase(event.rank);
    return {};
  }
  gone_[event.rank] = event.state == "lost" ? "was lost" : "has finished";
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
    for (const auto& [rank, how] : gone_) {
      if (disagreement || pending.shards.contains(rank)) continue;
      failures[step] = fmt::format("step {} cannot be saved: rank {} {} before it stored its part",
                                   step, rank, how);
      break;
    }
  }
  std::vector<Command> out;
  for (const auto& [step, why] : failures) {
    append(&out, fail(step, disagreement ? ErrorKind::invalid : ErrorKind::unavailable, why));
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

Command StopDecision::gate() {
  Command c = step_command(Command::Kind::gate, gate_);
  c.id = ++id_;
  most_ = 0;
  answered_.clear();
  return c;
}

Command StopDecision::begin() { return gate(); }

std::vector<Command> StopDecision::handle(const Event& event) {
  if (event.kind != Event::Kind::gated || event.id != id_ || decided_) return {};
  answered_.insert(event.node);
  if (event.max_step) most_ = std::max(most_, *event.max_step);
  if (answered_.size() < agents_) return {};
  // A rank that had published the gate's own step may have looked before the gate was there.
  if (most_ >= gate_) {
    gate_ = std::min(most_ + margin_, wire::kNoStep - 1);
    margin_ *= 2;
    return {gate()};
  }
  decided_ = gate_;
  return {step_command(Command::Kind::stop, gate_)};
}

}  // namespace bellows
