// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/coordinator.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/wire.h"

namespace bellows {
namespace {

Command step_command(Command::Kind kind, std::uint64_t step) {
  Command c;
  c.kind = kind;
  c.step = step;
  return c;
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
      if (pending_.erase(*event.step) == 0) return {};
      committed_ = event.step;
      failed_.clear();
      return {step_command(Command::Kind::committed, *event.step)};
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
  return {c};
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
  if (pending.shards.size() < world_) return check_ranks();
  pending.committing = true;
  Command c = step_command(Command::Kind::commit, *event.step);
  for (const auto& [rank, one] : pending.shards) c.shards.push_back(one);
  return {c};
}

std::vector<Command> Coordinator::take_rank(const Event& event) {
  if (event.state == "joined") {
    gone_.erase(event.rank);
    return {};
  }
  gone_[event.rank] = event.state == "lost" ? "was lost" : "has finished";
  return check_ranks();
}

// A step waits for nothing when a rank without a shard of it is gone, or when every rank waits in
// save but not all for the same step.
std::vector<Command> Coordinator::check_ranks() {
  std::vector<Command> out;
  std::size_t waiting = 0;
  for (const auto& [step, pending] : pending_) waiting += pending.shards.size();
  const bool stuck = waiting >= world_ && pending_.size() > 1;
  std::vector<std::pair<std::uint64_t, std::string>> failures;
  for (const auto& [step, pending] : pending_) {
    if (pending.committing) continue;
    if (stuck) {
      failures.emplace_back(step, fmt::format("the ranks save different steps: {} and {}",
                                              pending_.begin()->first, pending_.rbegin()->first));
      continue;
    }
    for (const auto& [rank, how] : gone_) {
      if (pending.shards.contains(rank)) continue;
      failures.emplace_back(step,
                            fmt::format("step {} cannot be saved: rank {} {} before it gave its "
                                        "part",
                                        step, rank, how));
      break;
    }
  }
  for (const auto& [step, why] : failures) {
    for (Command& c : fail(step, stuck ? ErrorKind::invalid : ErrorKind::unavailable, why)) {
      out.push_back(std::move(c));
    }
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
