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

/// The step that a command is about, if it has one.
std::optional<std::uint64_t> step_of(const Command& command) {
  return std::visit(
      [](const auto& told) -> std::optional<std::uint64_t> {
        if constexpr (requires { told.step; }) return told.step;
        return std::nullopt;
      },
      command.body);
}

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
  const bool commits = std::holds_alternative<command::Commit>(command.body);
  parts_.voice.say_error(commits ? "commit" : "", step_of(command), no_memory());
}

void AgentLoop::obey(const Command& command) {
  if (!command.node.empty() && command.node != parts_.voice.node()) return;
  const bool needs_session = !std::holds_alternative<command::Hello>(command.body) &&
                             !std::holds_alternative<command::Query>(command.body);
  if (needs_session && !parts_.session) {
    return parts_.voice.say_error("hello", step_of(command),
                                  Error{ErrorKind::invalid, "the first command must be hello"});
  }
  std::visit([this](const auto& told) { obey(told); }, command.body);
}

void AgentLoop::obey(const command::Query& query) {
  event::Progress answer = progress();
  answer.id = query.id;
  parts_.voice.say(std::move(answer));
}

void AgentLoop::obey(const command::Commit& commit) {
  if (parts_.session->leader) parts_.store.commit(commit.step, commit.shards);
}

void AgentLoop::end_session() {
  parts_.links.each([this](RankLink& link) {
    cancel_saves(link);
    if (!link.parked_hello) link.gone = true;
    parts_.keep_copies(link);
  });
  parts_.links.drop_gone();
}

void AgentLoop::obey(const command::Hello& hello) {
  if (parts_.session) end_session();
  auto session = std::make_unique<Session>(hello, parts_.voice.node(), gate_limit_);
  const std::uint64_t reusable = parts_.kept.bytes() + parts_.bin->bytes();
  session->memory_for_rank =
      (available_memory() + reusable) / std::max<std::size_t>(session->ranks_here(), 1);
  parts_.ops.set_access(hello.access);
  session->writer = std::make_shared<StoreWriter>(parts_.ops, hello.place(), hello.attempt,
                                                  Retention{hello.keep, hello.keep_every});
  if (hello.replaces) session->writer->replace_only(*hello.replaces);
  parts_.session = std::move(session);
  parts_.jobs.disown();
  parts_.store.begin(parts_.session->writer);
  if (parts_.session->leader) {
    parts_.store.own([this](const Status& owned) {
      if (!owned) parts_.voice.say_error("hello", {}, owned.error());
    });
  }
  parts_.links.each([this](RankLink& link) {
    if (link.parked_hello) let_in(link);
  });
}

void AgentLoop::obey(const command::SetGate& wanted) {
  Gate& gate = parts_.session->gate;
  gate.set(wanted.step, Gate::Clock::now());
  parts_.links.each_joined([&](RankLink& link) { link.page->set_gate(gate.step()); });
  const auto newest = parts_.newest_step();
  gate.note_newest(newest);
  if (wanted.step) parts_.voice.say(event::Gated{wanted.id, newest});
}

void AgentLoop::obey(const command::SetStop& stop) {
  // After a suspension the decision may have waited longer than the ranks do.
  tick();
  Gate& gate = parts_.session->gate;
  if (auto status = gate.stop_at(stop.step); !status) {
    return parts_.voice.say_error("stop", stop.step, status.error());
  }
  parts_.links.each_joined([&](RankLink& link) { link.page->set_stop(gate.stop()); });
  parts_.voice.say(event::StopSet{stop.step});
}

void AgentLoop::obey(const command::Committed& committed) {
  const std::uint64_t step = committed.step;
  parts_.session->offer.commit(step);
  // What ranks gave before they died may be of this step, or of one that is committed next.
  parts_.kept.drop_older(step);
  parts_.links.each([&](RankLink& link) {
    SaveShell shell(parts_, link);
    link.saves.commit(step, shell);
  });
}

void AgentLoop::obey(const command::Failed& failed) {
  std::uint64_t& failures = parts_.session->failures;
  failures = std::max(failures, failed.id);
  parts_.links.each_joined([&](RankLink& link) {
    SaveShell shell(parts_, link);
    link.saves.fail(failed.step, failed.error, shell);
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

event::Progress AgentLoop::progress() const {
  event::Progress said;
  said.max_step = parts_.newest_step();
  said.busy = parts_.jobs.count() > 0;
  const Session* session = parts_.session.get();
  if (!session) return said;
  said.finished = session->finished;
  said.stopped = session->stopped;
  parts_.links.each([&](const RankLink& link) {
    said.unwritten += link.saves.unwritten();
    if (!link.page) return;
    const std::uint64_t step = link.page->step();
    said.ranks.push_back(link.number());
    said.steps.push_back(step == wire::kNoStep ? std::nullopt : std::optional(step));
    said.batch = std::max(said.batch, link.page->batch());
    said.noise_scale = std::max(said.noise_scale, link.page->noise_scale());
    if (step != wire::kNoStep && step >= session->gate.stop()) ++said.stopped;
  });
  return said;
}

}  // namespace bellows
