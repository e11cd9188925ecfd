// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/agent_loop.h"

#include <algorithm>
#include <new>
#include <utility>

#include "checkpoint/agent/save_shell.h"
#include "checkpoint/system/memory_limit.h"

namespace bellows {
namespace {

// A slow disk must not keep anyone waiting for shards that nobody will commit.
void cancel_saves(RankLink& link) { link.saves.cancel(); }

}  // namespace

AgentLoop::AgentLoop(std::string node, Fd listener, FileOps& ops,
                     std::unique_ptr<Completions> completions, int gate_limit_ms, Voice::Emit emit)
    : parts_(std::move(node), std::move(listener), ops, std::move(completions), std::move(emit)),
      gate_limit_(gate_limit_ms) {}

AgentLoop::~AgentLoop() {
  parts_.links.each(cancel_saves);
  parts_.links.clear();
}

// Whoever gave the command must not wait for what will not be done.
void AgentLoop::handle(const Command& command) try {
  obey(command);
} catch (const std::bad_alloc&) {
  const bool commits = command.kind == Command::Kind::commit;
  parts_.voice.say_error(commits ? "commit" : "", command.step, no_memory());
}

void AgentLoop::obey(const Command& command) {
  using Kind = Command::Kind;
  if (!command.node.empty() && command.node != parts_.voice.node()) return;
  if (command.kind == Kind::hello) return begin_session(command);
  if (command.kind == Kind::query) {
    Event e = progress();
    e.id = command.id;
    return parts_.voice.say(std::move(e));
  }
  if (!parts_.session) {
    return parts_.voice.say_error("hello", command.step,
                                  Error{ErrorKind::invalid, "the first command must be hello"});
  }
  switch (command.kind) {
    case Kind::find:
      return parts_.store.find(command.search);
    case Kind::restore:
      return restores_.offer(command);
    case Kind::gate:
      return set_gate(command);
    case Kind::stop:
      return set_stop(command);
    case Kind::commit:
      if (!parts_.session->leader || !command.step) return;
      return parts_.store.commit(*command.step, command.shards);
    case Kind::committed:
      return set_committed(*command.step);
    case Kind::failed:
      return set_failed(command);
    case Kind::hello:
    case Kind::query:
    case Kind::quit:
      return;
  }
}

void AgentLoop::end_session() {
  parts_.links.each([this](RankLink& link) {
    cancel_saves(link);
    if (!link.parked_hello) link.gone = true;
    parts_.keep_copies(link);
  });
  parts_.links.drop_gone();
}

void AgentLoop::begin_session(const Command& command) {
  if (parts_.session) end_session();
  auto session = std::make_unique<Session>(command, parts_.voice.node(), gate_limit_);
  const std::uint64_t reusable = parts_.kept.bytes() + parts_.bin->bytes();
  session->memory_for_rank =
      (available_memory() + reusable) / std::max<std::size_t>(session->ranks_here(), 1);
  parts_.ops.set_access(command.access);
  session->writer = std::make_shared<StoreWriter>(parts_.ops, command.place(), command.attempt,
                                                  Retention{command.keep, command.keep_every});
  if (command.replaces) session->writer->replace_only(*command.replaces);
  parts_.session = std::move(session);
  parts_.jobs.disown();
  parts_.store.begin(parts_.session->writer);
  if (parts_.session->leader) {
    parts_.store.own([this](const Status& owned) {
      if (!owned) parts_.voice.say_error("hello", {}, owned.error());
    });
  }
  parts_.links.each([this](RankLink& link) {
    if (link.parked_hello) take_hello(link);
  });
}

void AgentLoop::set_gate(const Command& command) {
  Gate& gate = parts_.session->gate;
  gate.set(command.step, Gate::Clock::now());
  parts_.links.each_joined([&](RankLink& link) { link.page->set_gate(gate.step()); });
  const auto newest = parts_.newest_step();
  gate.note_newest(newest);
  if (!command.step) return;
  Event e = event_of(Event::Kind::gated);
  e.id = command.id;
  e.max_step = newest;
  parts_.voice.say(std::move(e));
}

void AgentLoop::set_stop(const Command& command) {
  // After a suspension the decision may have waited longer than the ranks do.
  tick();
  Gate& gate = parts_.session->gate;
  if (auto status = gate.stop_at(command.step); !status) {
    return parts_.voice.say_error("stop", command.step, status.error());
  }
  parts_.links.each_joined([&](RankLink& link) { link.page->set_stop(gate.stop()); });
  parts_.voice.say(event_of(Event::Kind::stop_set, command.step));
}

void AgentLoop::set_committed(std::uint64_t step) {
  parts_.session->offer.commit(step);
  // What ranks gave before they died may be of this step, or of one that is committed next.
  parts_.kept.drop_older(step);
  parts_.links.each([&](RankLink& link) {
    SaveShell shell(parts_, link);
    link.saves.commit(step, shell);
  });
}

void AgentLoop::set_failed(const Command& command) {
  std::uint64_t& failures = parts_.session->failures;
  failures = std::max(failures, command.id);
  const Error error{command.error_kind, command.error};
  parts_.links.each_joined([&](RankLink& link) {
    SaveShell shell(parts_, link);
    link.saves.fail(*command.step, error, shell);
  });
}

void AgentLoop::announce() {
  announced_ = std::chrono::steady_clock::now();
  parts_.links.each_joined([](RankLink& link) { link.page->announce(); });
}

void AgentLoop::tick() {
  if (!parts_.session) return;
  std::uint64_t step = 0;
  const auto expired = parts_.session->gate.expire(Gate::Clock::now(), &step);
  if (!expired) return;
  parts_.links.each_joined([](RankLink& link) { link.page->set_gate(wire::kNoStep); });
  parts_.voice.say_error("gate", step, *expired);
}

Event AgentLoop::progress() const {
  Event e = event_of(Event::Kind::progress);
  e.node = parts_.voice.node();
  e.max_step = parts_.newest_step();
  e.busy = parts_.jobs.count() > 0;
  const Session* session = parts_.session.get();
  if (!session) return e;
  e.finished = session->finished;
  e.stopped = session->stopped;
  parts_.links.each([&](const RankLink& link) {
    e.unwritten += link.saves.unwritten();
    if (!link.page) return;
    const std::uint64_t step = link.page->step();
    e.ranks.push_back(link.number());
    e.steps.push_back(step == wire::kNoStep ? std::nullopt : std::optional(step));
    if (step != wire::kNoStep && step >= session->gate.stop()) ++e.stopped;
  });
  return e;
}

}  // namespace bellows
