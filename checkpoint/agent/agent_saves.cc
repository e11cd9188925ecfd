// SPDX-License-Identifier: Apache-2.0
// AgentLoop's side of the saves: buffers, writing, and what becomes of a step.
#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "checkpoint/agent/agent_loop.h"
#include "checkpoint/include/bellows.h"

namespace bellows {
namespace {

std::vector<ArrayPart> stored_parts(const RankLink& link) {
  std::vector<ArrayPart> out;
  const auto rank = link.number();
  const auto world = static_cast<std::uint32_t>(link.hello.world);
  for (ArrayPart part : link.arrays.parts) {
    wire::Array& a = part.array;
    if (wire::stored_part(a, part.name.data(), part.name.size(), rank, world, &a.first, &a.count)) {
      out.push_back(std::move(part));
    }
  }
  return out;
}

std::uint64_t milliseconds_since(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
}

}  // namespace

Event AgentLoop::event_of_save(Event::Kind kind, const RankLink& link, std::uint64_t step) const {
  Event e = event_of_rank(kind, link.number());
  e.step = step;
  e.id = parts_.session->failures;
  return e;
}

void AgentLoop::say_save_error(SaveState& save, const RankLink& link, const Error& error) {
  save.phase = SaveState::Phase::failed;
  Event e = event_of_save(Event::Kind::save_error, link, save.step);
  e.error = error.text;
  e.error_kind = error.kind;
  parts_.voice.say(std::move(e));
}

void AgentLoop::begin_save(RankLink& link, std::uint64_t step) {
  SaveState save;
  save.step = step;
  // A rank gives its steps in ascending order, one after the other.
  const bool ready =
      link.saves.empty() || (link.saves.back().phase > SaveState::Phase::copying &&
                             link.saves.back().step < step && link.saves.size() <= wire::kBuffers);
  if (!ready || !link.arrays.complete() || !place_parts(stored_parts(link), &save.placed)) {
    return farewell_.turn_out(link,
                              Error{ErrorKind::invalid, "a rank began a save it may not begin"});
  }
  for (const ArrayPart& part : link.arrays.parts) save.held.add(part);
  // What it has passed without saving it needs no answer any more.
  link.owed.erase(link.owed.begin(), link.owed.lower_bound(step));
  if (const auto owed = link.owed.find(step); owed != link.owed.end()) {
    link.fail_save(step, owed->second);
    link.owed.erase(owed);
    return;
  }
  link.saves.push_back(std::move(save));
  give_buffer(link);
}

// Answers the save that waits for a buffer, once there is one: this is what holds back a rank that
// saves faster than its steps can be stored.
void AgentLoop::give_buffer(RankLink& link) {
  if (link.saves.empty() || link.saves.back().phase != SaveState::Phase::waiting) return;
  SaveState& save = link.saves.back();
  const auto chosen = link.free_buffer(save.placed.total);
  if (!chosen) return;
  // What is being made spares the stored step's copy, too.
  if (link.reserving && (!link.buffers[*chosen] || link.copies[*chosen])) return;
  link.copies[*chosen].reset();
  save.phase = SaveState::Phase::copying;
  save.buffer = *chosen;
  std::shared_ptr<SharedMemory>& buffer = link.buffers[*chosen];
  if (buffer && buffer->size() >= save.placed.total) {
    link.answer_buffer(save.step, *chosen);
    return;
  }
  buffer.reset();
  // Two copies of what a rank stores are what was promised to be enough.
  const auto rank = link.number();
  parts_.kept.drop(rank);
  parts_.session->offer.drop_copies(rank);
  // Reserving gigabytes takes a while.
  parts_.jobs.post(
      parts_.shards,
      [bin = parts_.bin, total = save.placed.total] { return SharedMemory::make(total, bin); },
      [this, id = link.id, step = save.step](const MadeMemory& memory) {
        take_buffer(id, step, memory);
      });
}

// A buffer is reserved, or could not be.
void AgentLoop::take_buffer(std::uint64_t link_id, std::uint64_t step, const MadeMemory& memory) {
  RankLink* link = parts_.links.find(link_id);
  SaveState* save = link ? link->find_save(step) : nullptr;
  if (!save) return;
  if (memory) {
    link->set_buffer(save->buffer, *memory);
    link->answer_buffer(step, save->buffer);
  } else if (save->called_off) {
    const Error error = *save->called_off;
    fail_save(*link, step, error);
  } else if (link->saves.size() > 1) {
    // One buffer is enough: it will be free when the save before this one is stored.
    save->phase = SaveState::Phase::waiting;
  } else if (const auto& other = link->buffers[1 - save->buffer];
             other && other->size() >= save->placed.total) {
    save->phase = SaveState::Phase::waiting;
    give_buffer(*link);
  } else {
    say_save_error(*save, *link, memory.error());
  }
}

// Making a buffer takes as long as several copies into it, so the first is made while the rank
// computes its first steps.
void AgentLoop::reserve_first(RankLink& link) {
  Placed placed;
  if (!link.arrays.complete() || !place_parts(stored_parts(link), &placed)) {
    return farewell_.turn_out(
        link, Error{ErrorKind::invalid, "a rank asked for a buffer of no known size"});
  }
  link.first_bytes = placed.total;
  make_first(link);
}

// What a program registers before its first save may grow from call to call.
void AgentLoop::make_first(RankLink& link) {
  if (link.reserving || link.handed[0] || !link.saves.empty()) return;
  std::shared_ptr<SharedMemory>& first = link.buffers[0];
  if (first && first->size() >= link.first_bytes) return;
  // Later: other ranks are still restoring.
  if (parts_.session->offer.holds_memory_of(link.number())) return;
  first.reset();
  reserve(link, 0, link.first_bytes);
}

// A rank that goes on while its step is written may come with the next one before that is done, and
// a stored step's copy stays in memory only while the next goes elsewhere. What an earlier attempt
// left counts as the second.
void AgentLoop::reserve_second(RankLink& link) {
  const std::size_t other = link.buffers[0] ? 1 : 0;
  const auto& buffer = link.buffers[1 - other];
  if (link.gone || link.reserving || !buffer || link.buffers[other]) return;
  if (parts_.kept.has(link.number())) return;
  for (const SaveState& save : link.saves) {
    // It is being made.
    if (save.phase == SaveState::Phase::copying && save.buffer == other) return;
  }
  reserve(link, other, buffer->size());
}

// Only to be sooner: without memory for it there is nobody to tell.
void AgentLoop::reserve(RankLink& link, std::size_t index, std::uint64_t bytes) try {
  parts_.jobs.post(
      parts_.shards,
      [bin = parts_.bin, bytes] {
        auto memory = SharedMemory::make(bytes, bin);
        if (memory) (*memory)->fill_pages();
        return memory;
      },
      [this, id = link.id, index](const MadeMemory& memory) { take_reserved(id, index, memory); });
  link.reserving = true;
} catch (const std::bad_alloc&) {
}

void AgentLoop::take_reserved(std::uint64_t link_id, std::size_t index, const MadeMemory& memory) {
  RankLink* link = parts_.links.find(link_id);
  if (!link) return;
  link->reserving = false;
  if (memory && !link->buffers[index]) link->set_buffer(index, *memory);
  if (memory && index == 0) make_first(*link);
  give_buffer(*link);
}

std::string AgentLoop::shard_path(const RankLink& link, std::uint64_t step) const {
  return parts_.session->writer->shard_path(step, link.number(), parts_.session->hello.world);
}

// A rank has copied its arrays, or could not.
void AgentLoop::take_save(RankLink& link, std::uint64_t step, bool copied) {
  SaveState* save = link.find_save(step);
  if (!save || save->phase != SaveState::Phase::copying || !link.buffers[save->buffer]) {
    return farewell_.turn_out(link,
                              Error{ErrorKind::invalid, "a rank ended a save it did not begin"});
  }
  if (save->called_off) {
    const Error error = *save->called_off;
    return fail_save(link, step, error);
  }
  if (!copied) {
    // It may not even have mapped it: it gets another.
    link.buffers[save->buffer].reset();
    return say_save_error(
        *save, link,
        Error{ErrorKind::io, fmt::format("rank {} could not copy its arrays", link.rank)});
  }
  // Who reads it after this rank's end must not be able to change it.
  link.buffers[save->buffer]->refuse_writers();
  save->phase = SaveState::Phase::queued;
  write_next(link);
}

// A rank's shards are written one after the other: who decides about steps relies on their order.
void AgentLoop::write_next(RankLink& link) {
  SaveState* next = nullptr;
  for (SaveState& save : link.saves) {
    if (save.phase == SaveState::Phase::writing) return;
    if (save.phase == SaveState::Phase::queued && !next) next = &save;
  }
  if (!next) return;
  next->phase = SaveState::Phase::writing;
  // Moved: a copy of many arrays' parts may not find the memory.
  Snapshot snapshot{next->step,
                    link.number(),
                    parts_.session->hello.world,
                    std::move(next->placed.parts),
                    std::move(next->placed.offsets),
                    link.buffers[next->buffer]->data(),
                    next->held};
  parts_.jobs.post(
      parts_.shards,
      [&ops = parts_.ops, path = shard_path(link, next->step), writer = parts_.session->writer,
       snapshot = std::move(snapshot), buffer = link.buffers[next->buffer],
       cancelled = next->cancelled]() -> Result<WrittenShard> {
        if (auto status = writer->begin_step(snapshot.step); !status) return status.error();
        auto copy = std::make_shared<ShardCopy>();
        auto written = write_shard(ops, path, snapshot, *cancelled, copy.get());
        if (!written) return written.error();
        copy->arrays = buffer;
        return WrittenShard{*written, std::move(copy)};
      },
      [this, id = link.id, step = next->step](const Result<WrittenShard>& written) {
        take_shard(id, step, written);
      });
}

// A shard is written, or could not be.
void AgentLoop::take_shard(std::uint64_t link_id, std::uint64_t step,
                           const Result<WrittenShard>& written) {
  RankLink* link = parts_.links.find(link_id);
  SaveState* save = link ? link->find_save(step) : nullptr;
  if (!save) return;
  if (save->called_off) {
    save->phase = SaveState::Phase::failed;
    remove_shard_then_fail(*link, step, *save->called_off);
  } else if (written) {
    save->phase = SaveState::Phase::written;
    link->copies[save->buffer] = written->copy;
    Event e = event_of_save(Event::Kind::shard, *link, step);
    e.shard = written->file;
    e.took_ms = milliseconds_since(save->begun);
    parts_.voice.say(std::move(e));
  } else {
    say_save_error(
        *save, *link,
        Error{written.error().kind, fmt::format("rank {}: {}", link->rank, written.error().text)});
  }
  write_next(*link);
}

void AgentLoop::set_committed(const Command& command) {
  const std::uint64_t step = *command.step;
  parts_.session->offer.commit(step);
  // What ranks gave before they died may be of this step, or of one that is committed next.
  parts_.kept.drop_older(step);
  parts_.links.each([&](RankLink& link) {
    if (!link.find_save(step)) return;
    link.end_save(step);
    link.answer(wire::Op::saved, step);
    give_buffer(link);
    reserve_second(link);
  });
}

void AgentLoop::set_failed(const Command& command) {
  parts_.session->failures = std::max(parts_.session->failures, command.id);
  const Error error{command.error_kind, command.error};
  parts_.links.each_joined([&](RankLink& link) {
    if (SaveState* save = link.find_save(*command.step)) {
      call_off(link, *save, error);
    } else {
      // It comes to this save later; the others are told now, and must not wait for it again.
      link.owed.insert_or_assign(*command.step, error);
    }
  });
}

// The step has failed on some rank: this one is told, once its own shard is out of the way.
void AgentLoop::call_off(RankLink& link, SaveState& save, const Error& error) {
  switch (save.phase) {
    case SaveState::Phase::waiting:
    case SaveState::Phase::queued:
      return fail_save(link, save.step, error);
    case SaveState::Phase::copying:
      // The buffer is the rank's until it has copied.
      save.called_off = error;
      return;
    case SaveState::Phase::writing:
      save.called_off = error;
      *save.cancelled = true;
      return;
    case SaveState::Phase::written:
    case SaveState::Phase::failed:
      return remove_shard_then_fail(link, save.step, error);
  }
}

void AgentLoop::remove_shard_then_fail(RankLink& link, std::uint64_t step, const Error& error) {
  parts_.jobs.post(
      parts_.shards,
      [this, path = shard_path(link, step)] { return remove_shard(parts_.ops, path); },
      // What could not be removed goes with what else an attempt leaves.
      [this, id = link.id, step, error](const Status&) {
        RankLink* waiting = parts_.links.find(id);
        if (waiting && waiting->find_save(step)) fail_save(*waiting, step, error);
      });
}

void AgentLoop::fail_save(RankLink& link, std::uint64_t step, const Error& error) {
  link.forget_copy(step);
  link.end_save(step);
  link.fail_save(step, error);
  give_buffer(link);
}

}  // namespace bellows
