// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/agent_loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <thread>

#include "checkpoint/include/bellows.h"
#include "checkpoint/system/memory_limit.h"

namespace bellows {
namespace {

std::size_t shard_threads() { return std::clamp(std::thread::hardware_concurrency(), 2u, 8u); }

}  // namespace

AgentLoop::AgentLoop(std::string node, Fd listener, FileOps& ops,
                     std::unique_ptr<Completions> completions, int gate_limit_ms, Voice::Emit emit)
    : voice_(std::move(node), std::move(emit)),
      listener_(std::move(listener)),
      ops_(ops),
      jobs_(std::move(completions)),
      gate_limit_(gate_limit_ms),
      store_(voice_, jobs_),
      shards_(shard_threads(), jobs_.completions()) {}

AgentLoop::~AgentLoop() {
  // A slow disk must not keep ranks waiting for an agent that is leaving.
  for (auto& [fd, link] : links_) {
    for (SaveState& save : link->saves) *save.cancelled = true;
  }
  links_.clear();
}

// Whoever gave the command must not wait for what will not be done.
void AgentLoop::handle(const Command& command) try {
  obey(command);
} catch (const std::bad_alloc&) {
  const bool commits = command.kind == Command::Kind::commit;
  voice_.say_error(commits ? "commit" : "", command.step, no_memory());
}

void AgentLoop::obey(const Command& command) {
  using Kind = Command::Kind;
  if (!command.node.empty() && command.node != voice_.node()) return;
  if (command.kind == Kind::hello) return begin_session(command);
  if (command.kind == Kind::query) {
    Event e = progress();
    e.id = command.id;
    return voice_.say(std::move(e));
  }
  if (!session_) {
    return voice_.say_error("hello", command.step,
                            Error{ErrorKind::invalid, "the first command must be hello"});
  }
  switch (command.kind) {
    case Kind::find:
      return store_.find(command.search);
    case Kind::restore:
      return set_restore(command);
    case Kind::gate:
      return set_gate(command);
    case Kind::stop:
      return set_stop(command);
    case Kind::commit:
      if (session_->leader && command.step) store_.commit(*command.step, command.shards);
      return;
    case Kind::committed:
      return set_committed(command);
    case Kind::failed:
      return set_failed(command);
    case Kind::hello:
    case Kind::query:
    case Kind::quit:
      return;
  }
}

void AgentLoop::end_session() {
  for (auto& [fd, link] : links_) {
    for (SaveState& save : link->saves) *save.cancelled = true;
    if (!link->parked_hello) link->gone = true;
    keep_copies(*link);
  }
  std::erase_if(links_, [](const auto& entry) { return entry.second->gone; });
}

void AgentLoop::begin_session(const Command& command) {
  if (session_) end_session();
  auto session = std::make_unique<Session>(gate_limit_);
  session->hello = command;
  session->leader = command.leader == voice_.node();
  if (auto mine = command.ranks.find(voice_.node()); mine != command.ranks.end()) {
    session->ranks.insert(mine->second.begin(), mine->second.end());
  }
  const std::uint64_t reusable = kept_.bytes() + bin_->bytes();
  session->memory_for_rank =
      (available_memory() + reusable) / std::max<std::size_t>(session->ranks_here(), 1);
  ops_.set_access(command.access);
  session->writer = std::make_shared<StoreWriter>(ops_, command.place(), command.attempt,
                                                  Retention{command.keep, command.keep_every});
  if (command.replaces) session->writer->replace_only(*command.replaces);
  session_ = std::move(session);
  jobs_.disown();
  store_.begin(session_->writer);
  if (session_->leader) {
    store_.own([this](const Status& owned) {
      if (!owned) voice_.say_error("hello", {}, owned.error());
    });
  }
  for (auto& [fd, link] : links_) {
    if (link->parked_hello) take_hello(*link);
  }
}

void AgentLoop::set_restore(const Command& command) {
  session_->restore_known = true;
  session_->restore_step = command.step;
  session_->no_step.reset();
  if (!command.error.empty()) session_->no_step = Error{command.error_kind, command.error};
  if (command.step)
    kept_.keep_only(*command.step);
  else
    kept_.clear();
  Event ready = event_of(Event::Kind::ready);
  if (command.rendezvous && session_->leader) {
    auto port = ReservedPort::take();
    if (!port) return voice_.say_error("restore", command.step, port.error());
    ready.rendezvous = {own_address(voice_.node()), port->port()};
    session_->port.emplace(std::move(*port));
  }
  voice_.say(std::move(ready));
  for (auto& [fd, link] : links_) {
    if (link->restoring) begin_restore(*link);
  }
  // What could not be read just now may be asked for again.
  if (command.step) session_->no_step.reset();
}

std::optional<std::uint64_t> AgentLoop::newest_step_of_ranks() const {
  std::optional<std::uint64_t> newest = session_ ? session_->newest : std::nullopt;
  for (const auto& [fd, link] : links_) {
    if (!link->page || link->page->step() == wire::kNoStep) continue;
    newest = std::max(newest.value_or(0), link->page->step());
  }
  return newest;
}

void AgentLoop::set_gate(const Command& command) {
  session_->gate.set(command.step, Gate::Clock::now());
  for (auto& [fd, link] : links_) {
    if (link->page) link->page->set_gate(session_->gate.step());
  }
  const auto newest = newest_step_of_ranks();
  session_->gate.note_newest(newest);
  if (!command.step) return;
  Event e = event_of(Event::Kind::gated);
  e.id = command.id;
  e.max_step = newest;
  voice_.say(std::move(e));
}

void AgentLoop::set_stop(const Command& command) {
  // After a suspension the decision may have waited longer than the ranks do.
  tick();
  if (auto status = session_->gate.stop_at(command.step); !status) {
    return voice_.say_error("stop", command.step, status.error());
  }
  for (auto& [fd, link] : links_) {
    if (link->page) link->page->set_stop(session_->gate.stop());
  }
  voice_.say(event_of(Event::Kind::stop_set, command.step));
}

void AgentLoop::announce() {
  announced_ = std::chrono::steady_clock::now();
  for (auto& [fd, link] : links_)
    if (link->page) link->page->announce();
}

void AgentLoop::tick() {
  if (!session_) return;
  std::uint64_t step = 0;
  const auto expired = session_->gate.expire(Gate::Clock::now(), &step);
  if (!expired) return;
  for (auto& [fd, link] : links_) {
    if (link->page) link->page->set_gate(wire::kNoStep);
  }
  voice_.say_error("gate", step, *expired);
}

Event AgentLoop::progress() const {
  Event e = event_of(Event::Kind::progress);
  e.node = voice_.node();
  e.max_step = newest_step_of_ranks();
  e.busy = jobs_.count() > 0;
  if (!session_) return e;
  e.finished = session_->finished;
  e.stopped = session_->stopped;
  for (const auto& [fd, link] : links_) {
    e.unwritten += link->unwritten();
    if (!link->page) continue;
    const std::uint64_t step = link->page->step();
    e.ranks.push_back(static_cast<std::uint32_t>(link->rank));
    e.steps.push_back(step == wire::kNoStep ? std::nullopt : std::optional(step));
    if (step != wire::kNoStep && step >= session_->gate.stop()) ++e.stopped;
  }
  return e;
}

}  // namespace bellows
