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
      return refuse_message(link, message->head);
    }
  }
}

// A message of a rank with many arrays may need more than the agent keeps in reserve.
void AgentLoop::refuse_message(RankLink& link, const wire::Head& head) {
  const Error error = no_memory();
  SaveShell shell(parts_, link);
  switch (head.op) {
    case wire::Op::save_begin:
    case wire::Op::save_ready:
      return link.saves.refuse(head.step, error, shell);
    case wire::Op::taken:
      if (head.value == wire::Taken::all_blocks) return;
      [[fallthrough]];
    case wire::Op::restore:
      link.fail(BELLOWS_ERR_MEMORY, error.text);
      return;
    case wire::Op::reserve:
      return;
    default:
      // It sent more than this one, and waits for no answer.
      link.fail(BELLOWS_ERR_MEMORY, error.text);
      return farewell_.hang_up(link);
  }
}

void AgentLoop::take_message(RankLink& link, const RankMessage& message) {
  const wire::Head& head = message.head;
  if ((link.rank < 0) != (head.op == wire::Op::hello) || link.parked_hello) {
    return farewell_.turn_out(link,
                              Error{ErrorKind::invalid, "a rank sent its hello too late or twice"});
  }
  switch (head.op) {
    case wire::Op::hello:
      link.hello = message.hello;
      link.belongs = message.text;
      link.parked_hello = true;
      if (parts_.session) take_hello(link);
      return;
    case wire::Op::layout:
    case wire::Op::array:
      return take_layout(link, message);
    case wire::Op::save_begin:
    case wire::Op::save_ready:
    case wire::Op::reserve:
      if (auto status = take_save(link, head); !status) farewell_.turn_out(link, status.error());
      return;
    case wire::Op::restore:
      return restores_.ask(link, head.value == wire::Restore::whole);
    case wire::Op::taken:
      return restores_.take_taken(link, head.value == wire::Taken::all_blocks);
    case wire::Op::bye:
      if (head.value == wire::Bye::exits) {
        link.exits = true;
        return;
      }
      return farewell_.take_bye(link, head.value == wire::Bye::finishes);
    default:
      return;
  }
}

Status AgentLoop::take_save(RankLink& link, const wire::Head& head) {
  SaveShell shell(parts_, link);
  if (head.op == wire::Op::save_begin) return link.saves.begin(head.step, link.arrays, shell);
  if (head.op == wire::Op::reserve) return link.saves.prepare(link.arrays, shell);
  return link.saves.take_ready(head.step, head.value != wire::Ready::could_not_copy, shell);
}

void AgentLoop::take_hello(RankLink& link) {
  const Session& session = *parts_.session;
  link.parked_hello = false;
  link.rank = link.hello.rank;
  if (door_closed_) {
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

void AgentLoop::take_layout(RankLink& link, const RankMessage& message) {
  if (message.head.op == wire::Op::layout) {
    link.arrays.parts.clear();
    link.arrays.expected = message.head.value;
    return;
  }
  if (link.arrays.parts.size() >= link.arrays.expected) {
    return farewell_.turn_out(link,
                              Error{ErrorKind::invalid, "a rank sent more arrays than it said"});
  }
  link.arrays.parts.push_back(message.part);
}

}  // namespace bellows
