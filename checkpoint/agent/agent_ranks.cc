// SPDX-License-Identifier: Apache-2.0
// AgentLoop's side of the ranks: what their messages are for.
#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <new>
#include <utility>

#include "checkpoint/agent/agent_loop.h"
#include "checkpoint/agent/save_shell.h"
#include "checkpoint/include/bellows.h"
#include "common/plain/packet.h"

namespace bellows {
namespace {

/// From Slurm's signal to an agent until all ranks that got it too have come.
constexpr auto kAnnouncedLately = std::chrono::seconds(10);

}  // namespace

std::vector<int> AgentLoop::descriptors() const {
  std::vector<int> out = {parts_.jobs.completions().fd()};
  parts_.links.add_descriptors(&out);
  return out;
}

void AgentLoop::serve(const std::set<int>& readable) {
  for (int fd : readable) {
    if (RankLink* link = parts_.links.at(fd)) read_rank(*link);
  }
  Completions& completions = parts_.jobs.completions();
  if (readable.contains(completions.fd())) completions.run();
  farewell_.forget_departed();
  parts_.links.accept_from(readable);
}

void AgentLoop::read_rank(RankLink& link) {
  char bytes[wire::kMostMessage];
  while (!link.gone) {
    const ssize_t got = recv(link.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return farewell_.hang_up(link);
    if (static_cast<std::size_t>(got) > sizeof bytes) {
      return farewell_.turn_out(
          link, Error{ErrorKind::invalid, "a rank sent a message that is too long"});
    }
    const std::string_view text(bytes, static_cast<std::size_t>(got));
    if (const auto version = other_version(text)) {
      link.fail_version(*version);
      return farewell_.hang_up(link);
    }
    auto message = parse_rank_message(text);
    if (!message) return farewell_.turn_out(link, message.error());
    try {
      take_message(link, *message);
    } catch (const std::bad_alloc&) {
      return refuse_message(link, *message);
    }
  }
}

// A message of a rank with many arrays may need more than the agent keeps in reserve.
void AgentLoop::refuse_message(RankLink& link, const RankMessage& message) {
  const Error error = no_memory();
  const auto* begin = std::get_if<request::SaveBegin>(&message);
  const auto* ready = std::get_if<request::SaveReady>(&message);
  if (begin || ready) {
    SaveShell shell(parts_, link);
    return link.saves.refuse(begin ? begin->step : ready->step, error, shell);
  }
  const auto* taken = std::get_if<request::Taken>(&message);
  if (std::holds_alternative<request::Reserve>(message) || (taken && taken->all)) return;
  link.fail(BELLOWS_ERR_MEMORY, error.text);
  if (taken || std::holds_alternative<request::Restore>(message)) return;
  // It sent more than this one, and waits for no answer.
  farewell_.hang_up(link);
}

void AgentLoop::take_message(RankLink& link, const RankMessage& message) {
  const bool first = std::holds_alternative<request::Hello>(message);
  Status status;
  if ((link.rank < 0) != first || link.parked_hello)
    status = Error{ErrorKind::invalid, "a rank sent its hello too late or twice"};
  else
    status = std::visit([&](const auto& asked) { return take(link, asked); }, message);
  if (!status) farewell_.turn_out(link, status.error());
}

Status AgentLoop::take(RankLink& link, const request::Hello& hello) {
  link.hello = hello.hello;
  link.belongs = hello.belongs;
  link.parked_hello = true;
  if (parts_.session) let_in(link);
  return {};
}

Status AgentLoop::take(RankLink& link, const request::Layout& layout) {
  link.arrays.parts.clear();
  link.arrays.expected = layout.arrays;
  return {};
}

Status AgentLoop::take(RankLink& link, const request::Array& array) {
  if (link.arrays.parts.size() >= link.arrays.expected)
    return Error{ErrorKind::invalid, "a rank sent more arrays than it said"};
  link.arrays.parts.push_back(array.part);
  return {};
}

Status AgentLoop::take(RankLink& link, const request::SaveBegin& begin) {
  SaveShell shell(parts_, link);
  return link.saves.begin(begin.step, link.arrays, shell);
}

Status AgentLoop::take(RankLink& link, const request::SaveReady& ready) {
  SaveShell shell(parts_, link);
  return link.saves.take_ready(ready.step, ready.copied, shell);
}

Status AgentLoop::take(RankLink& link, const request::Reserve&) {
  SaveShell shell(parts_, link);
  return link.saves.prepare(link.arrays, shell);
}

Status AgentLoop::take(RankLink& link, const request::Restore& restore) {
  restores_.ask(link, restore.whole);
  return {};
}

Status AgentLoop::take(RankLink& link, const request::Taken& taken) {
  restores_.take_taken(link, taken.all);
  return {};
}

Status AgentLoop::take(RankLink& link, const request::Bye& bye) {
  if (bye.how == wire::Bye::exits)
    link.exits = true;
  else
    farewell_.take_bye(link, bye.how == wire::Bye::finishes);
  return {};
}

void AgentLoop::let_in(RankLink& link) {
  const Session& session = *parts_.session;
  link.parked_hello = false;
  link.rank = link.hello.rank;
  // Its successor may be looked at first, and would get what was there before the end.
  parts_.links.each_joined([this](RankLink& other) {
    if (plain::hung_up(other.socket.get())) read_rank(other);
  });
  if (one_program_ && farewell_.any_left()) {
    link.fail(BELLOWS_ERR_BUSY, "the program that used this directory is still leaving", true);
    return farewell_.hang_up(link);
  }
  // One that was slow to start, and whose attempt has been given up meanwhile.
  if (session.is_foreign(link.belongs)) {
    link.fail(BELLOWS_ERR_FENCED, fmt::format("rank {} is of attempt {}, the job is at {}",
                                              link.rank, link.belongs, session.hello.attempt));
    return farewell_.hang_up(link);
  }
  if (auto why = session.refusal(link.hello, link.belongs, parts_.links.has(link.rank))) {
    link.fail(BELLOWS_ERR_BUSY, *why);
    return farewell_.hang_up(link);
  }
  welcome(link);
}

void AgentLoop::welcome(RankLink& link) {
  const Session& session = *parts_.session;
  auto page = ControlPage::make(session.gate.step(), session.gate.stop());
  if (!page) {
    link.fail(BELLOWS_ERR_MEMORY, page.error().text);
    return farewell_.hang_up(link);
  }
  link.page = std::move(*page);
  link.saves.join(link.number(), session.hello.world);
  // It may have got the signal just before it came here.
  if (announced_ && std::chrono::steady_clock::now() - *announced_ < kAnnouncedLately)
    link.page->announce();
  if (!link.answer(wire::Op::welcome, 0, session.memory_for_rank, link.page->fd()))
    return farewell_.hang_up(link);
  had_ranks_ = true;
  parts_.voice.say(event::Rank{link.number(), event::Rank::State::joined});
}

}  // namespace bellows
