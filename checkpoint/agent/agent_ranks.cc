// SPDX-License-Identifier: Apache-2.0
// AgentLoop's side of the ranks: their sockets and restores.
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "checkpoint/agent/agent_loop.h"
#include "checkpoint/include/bellows.h"

namespace bellows {
namespace {

/// From Slurm's signal to an agent until all ranks that got it too have come.
constexpr auto kAnnouncedLately = std::chrono::seconds(10);

/// Descriptors on their way to all ranks together: a user's are limited.
constexpr std::size_t kSourcesAtOnce = 256;

/// What is kept for slower ranks takes memory.
constexpr std::size_t kMostRestores = 4;

bool same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

std::vector<int> AgentLoop::descriptors() const {
  std::vector<int> out = {jobs_.completions().fd()};
  for (const auto& [fd, link] : links_) {
    if (!link->gone) out.push_back(fd);
  }
  // Last, so that a rank's end is seen before its successor's beginning.
  if (!no_descriptors_) out.push_back(listener_.get());
  return out;
}

void AgentLoop::serve(const std::set<int>& readable) {
  for (int fd : readable) {
    if (auto link = links_.find(fd); link != links_.end()) read_rank(*link->second);
  }
  if (readable.contains(jobs_.completions().fd())) jobs_.completions().run();
  bury();
  no_descriptors_ = false;
  if (readable.contains(listener_.get())) accept_rank();
}

void AgentLoop::accept_rank() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // The rank goes on waiting there, and would else be seen at once again, and again.
  no_descriptors_ = !socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
  if (!socket || !same_user(socket.get())) return;
  auto link = std::make_unique<RankLink>();
  link->id = next_link_++;
  const int fd = socket.get();
  link->socket = std::move(socket);
  links_[fd] = std::move(link);
}

RankLink* AgentLoop::find_link(std::uint64_t id) {
  for (auto& [fd, link] : links_) {
    if (link->id == id) return link.get();
  }
  return nullptr;
}

void AgentLoop::read_rank(RankLink& link) {
  char bytes[wire::kMostMessage];
  while (!link.gone) {
    const ssize_t got = recv(link.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return hang_up(link);
    if (static_cast<std::size_t>(got) > sizeof bytes) {
      return protocol_error(link,
                            Error{ErrorKind::invalid, "a rank sent a message that is too long"});
    }
    const std::string_view text(bytes, static_cast<std::size_t>(got));
    if (const auto version = other_version(text)) {
      link.fail_version(*version);
      return hang_up(link);
    }
    auto message = parse_rank_message(text);
    if (!message) return protocol_error(link, message.error());
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
  switch (head.op) {
    case wire::Op::save_begin:
    case wire::Op::save_ready:
      if (!link.find_save(head.step)) link.saves.emplace_back().step = head.step;
      return say_save_error(*link.find_save(head.step), link, error);
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
      return hang_up(link);
  }
}

void AgentLoop::protocol_error(RankLink& link, const Error& error) {
  link.fail(BELLOWS_ERR_INVALID, error.text);
  hang_up(link);
}

void AgentLoop::take_message(RankLink& link, const RankMessage& message) {
  const wire::Head& head = message.head;
  if ((link.rank < 0) != (head.op == wire::Op::hello) || link.parked_hello) {
    return protocol_error(link,
                          Error{ErrorKind::invalid, "a rank sent its hello too late or twice"});
  }
  switch (head.op) {
    case wire::Op::hello:
      link.hello = message.hello;
      link.belongs = message.text;
      link.parked_hello = true;
      if (session_) take_hello(link);
      return;
    case wire::Op::layout:
    case wire::Op::array:
      return take_layout(link, message);
    case wire::Op::save_begin:
      return begin_save(link, head.step);
    case wire::Op::save_ready:
      take_save(link, head.step, head.value != wire::Ready::could_not_copy);
      return reserve_second(link);
    case wire::Op::reserve:
      return reserve_first(link);
    case wire::Op::restore:
      ++link.restores;
      link.restoring = true;
      link.wants_whole = head.value == wire::Restore::whole;
      if (session_->restore_known || store_.not_owned()) begin_restore(link);
      return;
    case wire::Op::taken:
      return take_taken(link, head.value == wire::Taken::all_blocks);
    case wire::Op::bye:
      if (head.value == wire::Bye::exits) {
        link.exits = true;
        return;
      }
      return take_bye(link, head.value == wire::Bye::finishes);
    default:
      return;
  }
}

// Why a rank may not join, or nothing.
std::optional<std::string> AgentLoop::refusal(const RankLink& link) const {
  const Command& hello = session_->hello;
  if (static_cast<std::uint32_t>(link.hello.world) != hello.world) {
    return fmt::format("rank {} says there are {} ranks, but this program has {}", link.hello.rank,
                       link.hello.world, hello.world);
  }
  if (link.belongs.starts_with('/') && link.belongs != hello.dir) {
    return fmt::format("this agent serves {}, not {}", hello.dir, link.belongs);
  }
  if (!session_->ranks.empty() &&
      !session_->ranks.contains(static_cast<std::uint32_t>(link.hello.rank))) {
    return fmt::format("rank {} does not belong on node {}", link.hello.rank, voice_.node());
  }
  for (const auto& [fd, other] : links_) {
    if (other->page && !other->gone && other->rank == link.hello.rank) {
      return fmt::format(
          "rank {} is connected already: another program uses {}, or two ranks have "
          "the same number",
          link.hello.rank, hello.dir);
    }
  }
  return {};
}

void AgentLoop::take_hello(RankLink& link) {
  link.parked_hello = false;
  link.rank = link.hello.rank;
  if (door_closed_) {
    link.fail(BELLOWS_ERR_BUSY, "the program that used this directory is still leaving", true);
    return hang_up(link);
  }
  // One that was slow to start, and whose attempt has been given up meanwhile.
  if (link.belongs[0] != '/' && link.belongs != session_->hello.attempt) {
    link.fail(BELLOWS_ERR_FENCED, fmt::format("rank {} is of attempt {}, the job is at {}",
                                              link.rank, link.belongs, session_->hello.attempt));
    return hang_up(link);
  }
  if (auto why = refusal(link)) {
    link.fail(BELLOWS_ERR_BUSY, *why);
    return hang_up(link);
  }
  auto page = ControlPage::make(session_->gate.step(), session_->gate.stop());
  if (!page) {
    link.fail(BELLOWS_ERR_MEMORY, page.error().text);
    return hang_up(link);
  }
  link.page = std::move(*page);
  // It may have got the signal just before it came here.
  if (announced_ && std::chrono::steady_clock::now() - *announced_ < kAnnouncedLately)
    link.page->announce();
  if (!link.answer(wire::Op::welcome, 0, session_->memory_for_rank, link.page->fd()))
    return hang_up(link);
  had_ranks_ = true;
  Event e = event_of_rank(Event::Kind::rank, static_cast<std::uint32_t>(link.rank));
  e.state = "joined";
  voice_.say(std::move(e));
}

void AgentLoop::take_layout(RankLink& link, const RankMessage& message) {
  if (message.head.op == wire::Op::layout) {
    link.parts.clear();
    link.parts_expected = message.head.value;
    return;
  }
  if (link.parts.size() >= link.parts_expected) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank sent more arrays than it said"});
  }
  link.parts.push_back(message.part);
}

// A program may restore in several calls. The ranks share each: one may be at its third when
// another comes to its first.
std::shared_ptr<NodeRestore> AgentLoop::restore_for(const RankLink& link, std::uint64_t step) {
  auto& restores = session_->restores;
  std::erase_if(restores, [](const auto& entry) { return entry.second->is_over(); });
  std::shared_ptr<NodeRestore>& shared = restores[link.restores];
  if (!shared || shared->step() != step) {
    shared = std::make_shared<NodeRestore>(session_->hello.place(), step, session_->ranks_here(),
                                           copies_of(step), bin_);
  }
  const auto out = shared;
  if (restores.size() > kMostRestores) restores.erase(restores.begin());
  return out;
}

void AgentLoop::begin_restore(RankLink& link) try {
  link.restoring = false;
  if (store_.not_owned()) {
    // Why may have passed.
    return store_.own([this, id = link.id](const Status& owned) {
      RankLink* waiting = find_link(id);
      if (!waiting) return;
      if (!owned) return (void)waiting->fail(code_of(owned.error().kind), owned.error().text);
      waiting->restoring = true;
      if (session_->restore_known) begin_restore(*waiting);
    });
  }
  if (session_->no_step) {
    link.fail(code_of(session_->no_step->kind), session_->no_step->text);
    return;
  }
  if (!session_->restore_step) {
    link.answer(wire::Op::restored, 0, 0);
    return;
  }
  Placed placed;
  if (link.parts.size() != link.parts_expected || !place_parts(link.parts, &placed)) {
    return protocol_error(link,
                          Error{ErrorKind::invalid, "a rank asked for arrays it did not name"});
  }
  const std::uint64_t step = *session_->restore_step;
  jobs_.post(
      shards_,
      [restore = restore_for(link, step), rank = static_cast<std::uint32_t>(link.rank),
       whole = link.wants_whole, ranks = session_->ranks_here(), in_job = link.belongs[0] != '/',
       placed = std::move(placed)]() -> Result<RestoredArrays> {
        ReadCount count;
        BlockOffers offers;
        offers.per_rank = in_job;
        offers.most_sources =
            std::clamp(kSourcesAtOnce / ranks, std::size_t{1}, offers.most_sources);
        auto memory = restore->read(rank, placed, &count, whole ? nullptr : &offers);
        if (!memory) return memory.error();
        return RestoredArrays{*memory, std::move(offers), count.memory, count.store};
      },
      [this, id = link.id, step](const Result<RestoredArrays>& arrays) {
        take_restored(id, step, arrays);
      });
} catch (const std::bad_alloc&) {
  link.fail(BELLOWS_ERR_MEMORY, no_memory().text);
}

void AgentLoop::take_restored(std::uint64_t link_id, std::uint64_t step,
                              const Result<RestoredArrays>& arrays) {
  RankLink* link = find_link(link_id);
  if (!link) return;
  if (arrays) {
    const bool all_there = arrays->offers.blocks.empty();
    link->taking = {step, arrays->from_memory, arrays->from_store};
    // A kernel that holds too many descriptors on their way refuses more.
    if (!link->answer_restored(step, *arrays->memory, arrays->offers)) {
      return all_there ? give_up(*link) : take_taken(*link, false);
    }
    if (all_there) say_restored(*link);
    return;
  }
  const Error& error = arrays.error();
  if (error.kind == ErrorKind::invalid || error.kind == ErrorKind::unavailable) {
    const bool mismatch = error.kind == ErrorKind::invalid;
    link->fail(mismatch ? BELLOWS_ERR_MISMATCH : code_of(error.kind), error.text);
    return;
  }
  // The step is bad, or can't be read. A rank that heard so might begin at the start; it waits.
  link->restoring = true;
  session_->restore_known = false;
  Event e = event_of_rank(Event::Kind::restore_error, static_cast<std::uint32_t>(link->rank));
  e.step = step;
  e.error = error.text;
  e.error_kind = error.kind;
  voice_.say(std::move(e));
}

// Without an answer it would wait forever.
void AgentLoop::give_up(RankLink& link) {
  link.fail(BELLOWS_ERR_AGENT,
            "the kernel does not pass on the restored arrays: too many open files are on their way "
            "to this node's ranks; raise the limit on open files (ulimit -n)");
  hang_up(link);
}

void AgentLoop::take_taken(RankLink& link, bool all) {
  if (!link.taking) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank took what it was not given"});
  }
  if (all) return say_restored(link);
  link.taking.reset();
  link.wants_whole = link.restoring = true;
  if (session_->restore_known) begin_restore(link);
}

void AgentLoop::say_restored(RankLink& link) {
  Event e = event_of_rank(Event::Kind::restored, static_cast<std::uint32_t>(link.rank));
  e.step = link.taking->step;
  e.from_memory = link.taking->from_memory;
  e.from_store = link.taking->from_store;
  link.taking.reset();
  voice_.say(std::move(e));
}

void AgentLoop::take_bye(RankLink& link, bool finished) {
  if (!link.saves.empty()) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank left in the middle of a save"});
  }
  if (!store_.tidies()) return say_goodbye(link, finished);
  // Once the program has ended, the directory should hold what it is to hold.
  store_.after_all([this, id = link.id] {
    RankLink* leaving = find_link(id);
    if (leaving && leaving->leaving) say_goodbye(*leaving, *leaving->leaving);
  });
  link.leaving = finished;
}

void AgentLoop::say_goodbye(RankLink& link, bool finished) {
  link.leaving.reset();
  link.said_bye = true;
  ++(finished ? session_->finished : session_->stopped);
  link.answer(wire::Op::goodbye);
  Event e = event_of_rank(Event::Kind::rank, static_cast<std::uint32_t>(link.rank));
  e.state = finished ? "finished" : "stopped";
  voice_.say(std::move(e));
  hang_up(link);
}

void AgentLoop::hang_up(RankLink& link) {
  if (link.leaving) return say_goodbye(link, *link.leaving);
  link.gone = true;
  if (link.page) any_left_ = true;
}

void AgentLoop::keep_copies(RankLink& link) {
  for (auto& copy : link.copies) {
    if (copy) kept_.keep(std::move(copy));
  }
}

// What this node's memory holds of a step, of ranks that are here and of those that have left.
ShardCopies AgentLoop::copies_of(std::uint64_t step) const {
  ShardCopies out = kept_.of(step);
  for (const auto& [fd, link] : links_) {
    for (const auto& copy : link->copies) {
      if (copy && copy->step == step) out[copy->file.rank] = copy;
    }
  }
  return out;
}

// Forgets the ranks that have left. What a rank gave completely before it died is still written,
// and only then is it called lost, or exited: its step may be complete without it.
void AgentLoop::bury() {
  std::vector<int> dead;
  for (auto& [fd, link] : links_) {
    if (link->gone && link->unwritten() == 0) dead.push_back(fd);
  }
  for (int fd : dead) {
    std::unique_ptr<RankLink> link = std::move(links_[fd]);
    links_.erase(fd);
    if (!link->said_bye) keep_copies(*link);
    if (!link->page) continue;
    if (session_ && link->page->step() != wire::kNoStep) {
      session_->newest = std::max(session_->newest.value_or(0), link->page->step());
    }
    if (link->said_bye) continue;
    Event e = event_of_rank(Event::Kind::rank, static_cast<std::uint32_t>(link->rank));
    e.state = link->exits ? "exited" : "lost";
    voice_.say(std::move(e));
  }
}

}  // namespace bellows
