// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/rank_saves.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

namespace bellows {
namespace {

using Phase = SaveState::Phase;

Status broken(const char* what) { return Error{ErrorKind::invalid, what}; }

std::uint64_t milliseconds_since(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
}

}  // namespace

void RankSaves::Buffer::put(std::shared_ptr<SharedMemory> made) {
  memory = std::move(made);
  handed = false;
}

void RankSaves::join(std::uint32_t rank, std::uint32_t world) {
  rank_ = rank;
  world_ = world;
}

SaveState* RankSaves::find(std::uint64_t step) {
  for (SaveState& save : saves_) {
    if (save.step == step) return &save;
  }
  return nullptr;
}

std::uint32_t RankSaves::unwritten() const {
  return std::count_if(saves_.begin(), saves_.end(),
                       [](const SaveState& s) { return s.unwritten(); });
}

std::vector<ArrayPart> RankSaves::stored_parts(const NamedArrays& arrays) const {
  std::vector<ArrayPart> out;
  for (ArrayPart part : arrays.parts) {
    wire::Array& a = part.array;
    if (wire::stored_part(a, part.name.data(), part.name.size(), rank_, world_, &a.first,
                          &a.count)) {
      out.push_back(std::move(part));
    }
  }
  return out;
}

Status RankSaves::begin(std::uint64_t step, const NamedArrays& arrays, SaveHost& host) {
  SaveState save;
  save.step = step;
  // A rank gives its steps in ascending order, one after the other.
  const bool ready =
      saves_.empty() || (saves_.back().phase > Phase::copying && saves_.back().step < step &&
                         saves_.size() <= wire::kBuffers);
  if (!ready || !arrays.complete() || !place_parts(stored_parts(arrays), &save.placed)) {
    return broken("a rank began a save it may not begin");
  }
  for (const ArrayPart& part : arrays.parts) save.held.add(part);
  // What it has passed without saving it needs no answer any more.
  owed_.erase(owed_.begin(), owed_.lower_bound(step));
  if (const auto owed = owed_.find(step); owed != owed_.end()) {
    host.send_failed(step, owed->second);
    owed_.erase(owed);
    return {};
  }
  saves_.push_back(std::move(save));
  give_buffer(host);
  return {};
}

// What it costs to use a buffer that no save uses: it must be made again, or it holds the copy of
// the newest stored step.
int RankSaves::cost_of(std::size_t i, std::uint64_t bytes) const {
  const auto step = [this](std::size_t b) {
    return buffers_[b].copy ? buffers_[b].copy->step + 1 : 0;
  };
  const bool newest = buffers_[i].copy && step(i) >= step(wire::kBuffers - 1 - i);
  if (!buffers_[i].memory) return 3;
  return (newest ? 2 : 0) + (buffers_[i].holds(bytes) ? 0 : newest ? 2 : 1);
}

// A buffer that no save uses: rather one without the newest copy, then one of at least `bytes`.
std::optional<std::size_t> RankSaves::free_buffer(std::uint64_t bytes) const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const bool used = std::any_of(saves_.begin(), saves_.end(), [i](const SaveState& save) {
      return save.phase != Phase::waiting && save.buffer == i;
    });
    if (!used && (!found || cost_of(i, bytes) < cost_of(*found, bytes))) found = i;
  }
  return found;
}

// Answers the save that waits for a buffer, once there is one: this is what holds back a rank that
// saves faster than its steps can be stored.
void RankSaves::give_buffer(SaveHost& host) {
  if (saves_.empty() || saves_.back().phase != Phase::waiting) return;
  SaveState& save = saves_.back();
  const auto chosen = free_buffer(save.placed.total);
  if (!chosen) return;
  Buffer& buffer = buffers_[*chosen];
  // What is being made spares the stored step's copy, too.
  if (making_spare_ && (!buffer.memory || buffer.copy)) return;
  buffer.copy.reset();
  save.phase = Phase::copying;
  save.buffer = *chosen;
  if (buffer.holds(save.placed.total)) return hand_out(save, host);
  buffer.memory.reset();
  host.make_buffer(save.step, save.placed.total);
}

void RankSaves::hand_out(const SaveState& save, SaveHost& host) {
  Buffer& buffer = buffers_[save.buffer];
  const bool is_new = !buffer.handed;
  buffer.handed = true;
  host.send_buffer(save.step, save.buffer, *buffer.memory, is_new);
}

// A buffer is reserved, or could not be.
void RankSaves::take_buffer(std::uint64_t step, const MadeMemory& memory, SaveHost& host) {
  SaveState* save = find(step);
  if (!save) return;
  if (memory) {
    buffers_[save->buffer].put(*memory);
    hand_out(*save, host);
  } else if (save->called_off) {
    const Error error = *save->called_off;
    end_failed(step, error, host);
  } else if (saves_.size() > 1) {
    // One buffer is enough: it will be free when the save before this one is stored.
    save->phase = Phase::waiting;
  } else if (buffers_[1 - save->buffer].holds(save->placed.total)) {
    save->phase = Phase::waiting;
    give_buffer(host);
  } else {
    say_error(*save, memory.error(), host);
  }
}

Status RankSaves::prepare(const NamedArrays& arrays, SaveHost& host) {
  Placed placed;
  if (!arrays.complete() || !place_parts(stored_parts(arrays), &placed)) {
    return broken("a rank asked for a buffer of no known size");
  }
  first_bytes_ = placed.total;
  make_first(host);
  return {};
}

// What a program registers before its first save may grow from call to call.
void RankSaves::make_first(SaveHost& host) {
  Buffer& first = buffers_[0];
  if (making_spare_ || first.handed || !saves_.empty() || first.holds(first_bytes_)) return;
  // Later: other ranks are still restoring.
  if (host.restore_holds_memory()) return;
  first.memory.reset();
  make_spare(0, first_bytes_, host);
}

// A rank that goes on while its step is written may come with the next one before that is done, and
// a stored step's copy stays in memory only while the next goes elsewhere. What an earlier attempt
// left counts as the second.
void RankSaves::make_second(SaveHost& host) {
  const std::size_t other = buffers_[0].memory ? 1 : 0;
  const auto& memory = buffers_[1 - other].memory;
  if (!host.connected() || making_spare_ || !memory || buffers_[other].memory) return;
  if (host.keeps_earlier()) return;
  for (const SaveState& save : saves_) {
    // It is being made.
    if (save.phase == Phase::copying && save.buffer == other) return;
  }
  make_spare(other, memory->size(), host);
}

// This only saves time: if there is no memory for it, nobody needs to know.
void RankSaves::make_spare(std::size_t index, std::uint64_t bytes, SaveHost& host) try {
  host.make_spare(index, bytes);
  making_spare_ = true;
} catch (const std::bad_alloc&) {
}

void RankSaves::take_spare(std::size_t index, const MadeMemory& memory, SaveHost& host) {
  making_spare_ = false;
  if (memory && !buffers_[index].memory) buffers_[index].put(*memory);
  if (memory && index == 0) make_first(host);
  give_buffer(host);
}

Status RankSaves::take_ready(std::uint64_t step, bool copied, SaveHost& host) {
  if (auto status = take_copied(step, copied, host); !status) return status;
  make_second(host);
  return {};
}

Status RankSaves::take_copied(std::uint64_t step, bool copied, SaveHost& host) {
  SaveState* save = find(step);
  if (!save || save->phase != Phase::copying || !buffers_[save->buffer].memory) {
    return broken("a rank ended a save it did not begin");
  }
  auto& memory = buffers_[save->buffer].memory;
  if (save->called_off) {
    const Error error = *save->called_off;
    end_failed(step, error, host);
  } else if (!copied) {
    // It may not even have mapped it: it gets another.
    memory.reset();
    say_error(*save, {ErrorKind::io, fmt::format("rank {} could not copy its arrays", rank_)},
              host);
  } else {
    // Who reads it after this rank's end must not be able to change it.
    memory->refuse_writers();
    save->phase = Phase::queued;
    write_next(host);
  }
  return {};
}

// A rank's shards are written one after the other: who decides about steps relies on their order.
void RankSaves::write_next(SaveHost& host) {
  SaveState* next = nullptr;
  for (SaveState& save : saves_) {
    if (save.phase == Phase::writing) return;
    if (save.phase == Phase::queued && !next) next = &save;
  }
  if (!next) return;
  next->phase = Phase::writing;
  const auto& buffer = buffers_[next->buffer].memory;
  // Moved: a copy of many arrays' parts may not find the memory.
  Snapshot snapshot{next->step,
                    rank_,
                    world_,
                    std::move(next->placed.parts),
                    std::move(next->placed.offsets),
                    buffer->data(),
                    next->held};
  host.write_shard(std::move(snapshot), buffer, next->cancelled);
}

// A shard is written, or could not be.
void RankSaves::take_shard(std::uint64_t step, const Result<WrittenShard>& written,
                           SaveHost& host) {
  SaveState* save = find(step);
  if (!save) return;
  if (save->called_off) {
    save->phase = Phase::failed;
    host.remove_shard(step, *save->called_off);
  } else if (written) {
    save->phase = Phase::written;
    buffers_[save->buffer].copy = written->copy;
    host.say_shard(step, written->file, milliseconds_since(save->begun));
  } else {
    const Error& error = written.error();
    say_error(*save, {error.kind, fmt::format("rank {}: {}", rank_, error.text)}, host);
  }
  write_next(host);
}

void RankSaves::commit(std::uint64_t step, SaveHost& host) {
  if (!find(step)) return;
  forget(step);
  host.send_saved(step);
  give_buffer(host);
  make_second(host);
}

void RankSaves::fail(std::uint64_t step, const Error& error, SaveHost& host) {
  if (SaveState* save = find(step)) return call_off(*save, error, host);
  // The rank comes to this save later; the others are told now, and must not wait for it again.
  owed_.insert_or_assign(step, error);
}

// The rank is told once its own shard is out of the way.
void RankSaves::call_off(SaveState& save, const Error& error, SaveHost& host) {
  switch (save.phase) {
    case Phase::waiting:
    case Phase::queued:
      return end_failed(save.step, error, host);
    case Phase::copying:
      // The buffer is the rank's until it has copied.
      save.called_off = error;
      return;
    case Phase::writing:
      save.called_off = error;
      *save.cancelled = true;
      return;
    case Phase::written:
    case Phase::failed:
      return host.remove_shard(save.step, error);
  }
}

// What could not be removed goes with what else an attempt leaves.
void RankSaves::take_removed(std::uint64_t step, const Error& error, SaveHost& host) {
  if (find(step)) end_failed(step, error, host);
}

void RankSaves::end_failed(std::uint64_t step, const Error& error, SaveHost& host) {
  // What a buffer holds of it is of no use.
  for (Buffer& buffer : buffers_) {
    if (buffer.copy && buffer.copy->step == step) buffer.copy.reset();
  }
  forget(step);
  host.send_failed(step, error);
  give_buffer(host);
}

void RankSaves::forget(std::uint64_t step) {
  std::erase_if(saves_, [step](const SaveState& save) { return save.step == step; });
}

void RankSaves::refuse(std::uint64_t step, const Error& error, SaveHost& host) {
  if (!find(step)) saves_.emplace_back().step = step;
  say_error(*find(step), error, host);
}

void RankSaves::say_error(SaveState& save, const Error& error, SaveHost& host) {
  save.phase = Phase::failed;
  host.say_error(save.step, error);
}

void RankSaves::cancel() {
  for (SaveState& save : saves_) *save.cancelled = true;
}

}  // namespace bellows
