// SPDX-License-Identifier: Apache-2.0
// AgentLoop's side of the ranks: their sockets, saves and restores.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoint/agent_loop.h"
#include "checkpoint/bellows.h"
#include "checkpoint/store_names.h"

namespace bellows {
namespace {

bool same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

struct Placed {
  std::vector<ArrayPart> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t total = 0;
};

// The same places the library computes; false when they pass 2^62.
bool place(const std::vector<ArrayPart>& parts, Placed* out) {
  wire::Placer placer;
  for (const ArrayPart& part : parts) {
    std::uint64_t offset = 0;
    if (!placer.place(part.bytes(), &offset)) return false;
    out->parts.push_back(part);
    out->offsets.push_back(offset);
  }
  out->total = placer.total();
  return true;
}

std::vector<ArrayPart> stored_parts(const RankLink& link) {
  std::vector<ArrayPart> out;
  for (ArrayPart part : link.parts) {
    if (wire::stored_part(
            part.array, part.name.data(), part.name.size(), static_cast<std::uint32_t>(link.rank),
            static_cast<std::uint32_t>(link.hello.world), &part.array.first, &part.array.count)) {
      out.push_back(std::move(part));
    }
  }
  return out;
}

// The step's reader, opened once for all of this node's ranks.
Result<std::shared_ptr<const StepReader>> open_reader(Session& session, std::uint64_t step) {
  std::lock_guard lock(session.reader_mutex);
  if (session.reader && session.reader_step == step) return session.reader;
  const std::string path = step_path(session.hello.dir, step);
  auto manifest = read_manifest(path);
  if (!manifest) return manifest.error();
  auto reader = StepReader::open(path, *manifest);
  if (!reader) return reader;
  session.reader = *reader;
  session.reader_step = step;
  return reader;
}

Result<std::shared_ptr<SharedMemory>> restore_into_memory(Session& session, std::uint64_t step,
                                                          std::uint32_t rank,
                                                          const Placed& placed) {
  auto reader = open_reader(session, step);
  if (!reader) return reader.error();
  auto memory = SharedMemory::make(placed.total);
  if (!memory) return memory;
  Wanted wanted;
  wanted.rank = rank;
  wanted.parts = placed.parts;
  wanted.offsets = placed.offsets;
  wanted.data = (*memory)->data();
  wanted.shared = session.ranks.size() != 1 && session.hello.world > 1;
  if (auto kept = (*reader)->read(wanted); !kept) return kept.error();
  return memory;
}

}  // namespace

std::vector<int> AgentLoop::descriptors() const {
  std::vector<int> out = {completions_->fd()};
  for (const auto& [fd, link] : links_) {
    if (!link->gone) out.push_back(fd);
  }
  // Last, so that a rank's end is seen before its successor's beginning.
  out.push_back(listener_.get());
  return out;
}

void AgentLoop::serve(const std::set<int>& readable) {
  for (int fd : readable) {
    if (auto link = links_.find(fd); link != links_.end()) read_rank(*link->second);
  }
  if (readable.contains(completions_->fd())) completions_->run();
  bury();
  if (readable.contains(listener_.get())) accept_rank();
}

void AgentLoop::accept_rank() {
  Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
    auto message = parse_rank_message({bytes, static_cast<std::size_t>(got)});
    if (!message) return protocol_error(link, message.error());
    take_message(link, *message);
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
      link.dir = message.text;
      link.parked_hello = true;
      if (session_) take_hello(link);
      return;
    case wire::Op::layout:
    case wire::Op::array:
      return take_layout(link, message);
    case wire::Op::save_begin:
      return begin_save(link, head.step);
    case wire::Op::save_ready:
      return write_save(link, head.step);
    case wire::Op::restore:
      link.restoring = true;
      if (session_->restore_known || session_->broken) begin_restore(link);
      return;
    case wire::Op::bye:
      return take_bye(link, head.value == 1);
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
  if (!link.dir.empty() && link.dir != hello.dir) {
    return fmt::format("this agent serves {}, not {}", hello.dir, link.dir);
  }
  if (!session_->ranks.empty() &&
      !session_->ranks.contains(static_cast<std::uint32_t>(link.hello.rank))) {
    return fmt::format("rank {} does not belong on node {}", link.hello.rank, node_);
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
  if (auto why = refusal(link)) {
    link.fail(BELLOWS_ERR_BUSY, *why);
    return hang_up(link);
  }
  auto page = ControlPage::make(session_->gate, session_->stop);
  if (!page) {
    link.fail(BELLOWS_ERR_MEMORY, page.error().text);
    return hang_up(link);
  }
  link.page = std::move(*page);
  if (!link.answer(wire::Op::welcome, 0, 0, link.page->fd())) return hang_up(link);
  had_ranks_ = true;
  Event e;
  e.kind = Event::Kind::rank;
  e.rank = static_cast<std::uint32_t>(link.rank);
  e.state = "joined";
  say(std::move(e));
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

void AgentLoop::begin_save(RankLink& link, std::uint64_t step) {
  Placed placed;
  if (link.save || link.parts.size() != link.parts_expected ||
      !place(stored_parts(link), &placed)) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank began a save it may not begin"});
  }
  if (session_->broken) {
    link.fail(code_of(session_->broken->kind), session_->broken->text);
    return;
  }
  if (const auto owed = std::exchange(link.owed, std::nullopt); owed && owed->first == step) {
    link.fail(code_of(owed->second.kind), owed->second.text);
    return;
  }
  link.save.emplace();
  link.save->step = step;
  if (link.buffer && link.buffer->size() >= placed.total) {
    link.answer(wire::Op::buffer, step, link.buffer->size());
    return;
  }
  link.buffer.reset();
  // Reserving gigabytes takes a while.
  post(shards_, [this, id = link.id, total = placed.total]() -> Workers::Done {
    auto memory = SharedMemory::make(total);
    return [this, id, memory = std::move(memory)]() mutable {
      RankLink* asker = find_link(id);
      if (!asker || !asker->save) return;
      const std::uint64_t at = asker->save->step;
      if (memory) {
        asker->buffer = std::move(*memory);
        asker->answer(wire::Op::buffer, at, asker->buffer->size(), asker->buffer->fd());
        return;
      }
      asker->save->phase = SaveState::Phase::failed;
      Event e;
      e.kind = Event::Kind::save_error;
      e.rank = static_cast<std::uint32_t>(asker->rank);
      e.step = at;
      e.id = session_->failures;
      e.error = memory.error().text;
      e.error_kind = memory.error().kind;
      say(std::move(e));
    };
  });
}

std::string AgentLoop::shard_path(const RankLink& link, std::uint64_t step) const {
  return session_->writer->shard_path(step, static_cast<std::uint32_t>(link.rank),
                                      session_->hello.world);
}

void AgentLoop::write_save(RankLink& link, std::uint64_t step) {
  if (!link.save || link.save->phase != SaveState::Phase::copying || link.save->step != step ||
      !link.buffer) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank ended a save it did not begin"});
  }
  if (link.save->called_off) {
    const Error error = *link.save->called_off;
    link.save.reset();
    link.fail(code_of(error.kind), error.text);
    return;
  }
  link.save->phase = SaveState::Phase::writing;
  Placed placed;
  place(stored_parts(link), &placed);
  Snapshot snapshot{step,
                    static_cast<std::uint32_t>(link.rank),
                    session_->hello.world,
                    std::move(placed.parts),
                    std::move(placed.offsets),
                    link.buffer->data()};
  post(shards_,
       [this, id = link.id, path = shard_path(link, step), session = session_, step,
        snapshot = std::move(snapshot), buffer = link.buffer,
        cancelled = link.save->cancelled]() -> Workers::Done {
         auto status = session->writer->begin_step(step);
         Result<ShardFile> written = status ? write_shard(ops_, path, snapshot, *cancelled)
                                            : Result<ShardFile>(status.error());
         return [this, id, written = std::move(written)] { saved(id, written); };
       });
}

// A shard is written, or could not be.
void AgentLoop::saved(std::uint64_t link_id, const Result<ShardFile>& written) {
  RankLink* link = find_link(link_id);
  if (!link || !link->save) return;
  if (link->save->called_off) {
    link->save->phase = SaveState::Phase::failed;
    return remove_shard_then_fail(*link, *link->save->called_off);
  }
  Event e;
  e.rank = static_cast<std::uint32_t>(link->rank);
  e.step = link->save->step;
  e.id = session_->failures;
  if (written) {
    link->save->phase = SaveState::Phase::written;
    link->save->shard = *written;
    e.kind = Event::Kind::shard;
    e.shard = *written;
  } else {
    link->save->phase = SaveState::Phase::failed;
    e.kind = Event::Kind::save_error;
    e.error = fmt::format("rank {}: {}", link->rank, written.error().text);
    e.error_kind = written.error().kind;
  }
  say(std::move(e));
}

// The step has failed on some rank: this one is told, once its own shard is out of the way.
void AgentLoop::call_off(RankLink& link, const Error& error) {
  switch (link.save->phase) {
    case SaveState::Phase::copying:
      // The rank is told when it has copied: it doesn't listen before.
      link.save->called_off = error;
      return;
    case SaveState::Phase::writing:
      link.save->called_off = error;
      *link.save->cancelled = true;
      return;
    case SaveState::Phase::written:
    case SaveState::Phase::failed:
      return remove_shard_then_fail(link, error);
  }
}

void AgentLoop::remove_shard_then_fail(RankLink& link, const Error& error) {
  post(shards_,
       [this, id = link.id, path = shard_path(link, link.save->step), error]() -> Workers::Done {
         (void)remove_shard(ops_, path);
         return [this, id, error] {
           RankLink* waiting = find_link(id);
           if (!waiting || !waiting->save) return;
           waiting->save.reset();
           waiting->fail(code_of(error.kind), error.text);
         };
       });
}

void AgentLoop::begin_restore(RankLink& link) {
  link.restoring = false;
  if (session_->broken) {
    link.fail(code_of(session_->broken->kind), session_->broken->text);
    return;
  }
  if (!session_->restore_step) {
    link.answer(wire::Op::restored, 0, 0);
    return;
  }
  Placed placed;
  if (link.parts.size() != link.parts_expected || !place(link.parts, &placed)) {
    return protocol_error(link,
                          Error{ErrorKind::invalid, "a rank asked for arrays it did not name"});
  }
  const std::uint64_t step = *session_->restore_step;
  post(shards_,
       [this, id = link.id, session = session_, step, rank = static_cast<std::uint32_t>(link.rank),
        placed = std::move(placed)]() -> Workers::Done {
         auto memory = restore_into_memory(*session, step, rank, placed);
         return [this, id, step, memory = std::move(memory)] {
           RankLink* asker = find_link(id);
           if (!asker) return;
           if (memory) {
             asker->answer(wire::Op::restored, step, 1, (*memory)->fd());
             return;
           }
           const ErrorKind kind = memory.error().kind;
           asker->fail(kind == ErrorKind::invalid ? BELLOWS_ERR_MISMATCH : code_of(kind),
                       memory.error().text);
         };
       });
}

void AgentLoop::take_bye(RankLink& link, bool finished) {
  if (link.save) {
    return protocol_error(link, Error{ErrorKind::invalid, "a rank left in the middle of a save"});
  }
  link.said_bye = true;
  ++(finished ? session_->finished : session_->stopped);
  link.answer(wire::Op::goodbye);
  Event e;
  e.kind = Event::Kind::rank;
  e.rank = static_cast<std::uint32_t>(link.rank);
  e.state = finished ? "finished" : "stopped";
  say(std::move(e));
  hang_up(link);
}

void AgentLoop::hang_up(RankLink& link) {
  link.gone = true;
  if (link.page) any_left_ = true;
}

// Forgets the ranks that have left. What a rank gave completely before it died is still written,
// and only then is it called lost: its step may be complete without it.
void AgentLoop::bury() {
  std::vector<int> dead;
  for (auto& [fd, link] : links_) {
    const bool writing = link->save && link->save->phase == SaveState::Phase::writing;
    if (link->gone && !writing) dead.push_back(fd);
  }
  for (int fd : dead) {
    std::unique_ptr<RankLink> link = std::move(links_[fd]);
    links_.erase(fd);
    if (!link->page) continue;
    if (session_ && link->page->step() != wire::kNoStep) {
      session_->newest = std::max(session_->newest.value_or(0), link->page->step());
    }
    if (link->said_bye) continue;
    Event e;
    e.kind = Event::Kind::rank;
    e.rank = static_cast<std::uint32_t>(link->rank);
    e.state = "lost";
    say(std::move(e));
  }
}

}  // namespace bellows
