// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/save_shell.h"

#include <utility>

namespace bellows {

template <class Work, class Take>
void SaveShell::post(Work work, Take take) {
  parts_.jobs.post(parts_.shards, std::move(work),
                   [&parts = parts_, id = link_.id, take = std::move(take)](const auto& result) {
                     RankLink* link = parts.links.find(id);
                     if (!link) return;
                     SaveShell shell(parts, *link);
                     take(link->saves, result, shell);
                   });
}

// Reserving gigabytes takes a while.
void SaveShell::make_buffer(std::uint64_t step, std::uint64_t bytes) {
  // Two copies of what a rank stores are what was promised to be enough.
  parts_.kept.drop(link_.number());
  parts_.session->offer.drop_copies(link_.number());
  post([bin = parts_.bin, bytes] { return SharedMemory::make(bytes, bin); },
       [step](RankSaves& saves, const MadeMemory& memory, SaveHost& host) {
         saves.take_buffer(step, memory, host);
       });
}

void SaveShell::make_spare(std::size_t index, std::uint64_t bytes) {
  post(
      [bin = parts_.bin, bytes] {
        auto memory = SharedMemory::make(bytes, bin);
        if (memory) (*memory)->fill_pages();
        return memory;
      },
      [index](RankSaves& saves, const MadeMemory& memory, SaveHost& host) {
        saves.take_spare(index, memory, host);
      });
}

std::string SaveShell::shard_path(std::uint64_t step) const {
  return parts_.session->writer->shard_path(step, link_.number(), parts_.session->hello.world);
}

void SaveShell::write_shard(Snapshot snapshot, std::shared_ptr<SharedMemory> buffer,
                            std::shared_ptr<const std::atomic<bool>> cancelled) {
  const std::uint64_t step = snapshot.step;
  post(
      [&ops = parts_.ops, writer = parts_.session->writer, path = shard_path(step),
       snapshot = std::move(snapshot), buffer = std::move(buffer),
       cancelled = std::move(cancelled)]() -> Result<WrittenShard> {
        if (auto status = writer->begin_step(snapshot.step); !status) return status.error();
        auto copy = std::make_shared<ShardCopy>();
        auto written = bellows::write_shard(ops, path, snapshot, *cancelled, copy.get());
        if (!written) return written.error();
        copy->arrays = buffer;
        return WrittenShard{*written, std::move(copy)};
      },
      [step](RankSaves& saves, const Result<WrittenShard>& written, SaveHost& host) {
        saves.take_shard(step, written, host);
      });
}

void SaveShell::remove_shard(std::uint64_t step, const Error& error) {
  post([&ops = parts_.ops, path = shard_path(step)] { return bellows::remove_shard(ops, path); },
       [step, error](RankSaves& saves, const Status&, SaveHost& host) {
         saves.take_removed(step, error, host);
       });
}

void SaveShell::send_buffer(std::uint64_t step, std::size_t index, const SharedMemory& buffer,
                            bool is_new) {
  link_.answer_buffer(step, index, buffer, is_new);
}

void SaveShell::send_saved(std::uint64_t step) { link_.answer(wire::Op::saved, step); }

void SaveShell::send_failed(std::uint64_t step, const Error& error) {
  link_.fail_save(step, error);
}

void SaveShell::say_shard(std::uint64_t step, const ShardFile& file, std::uint64_t took_ms) {
  parts_.voice.say(event::Shard{file, step, parts_.session->failures, took_ms});
}

void SaveShell::say_error(std::uint64_t step, const Error& error) {
  parts_.voice.say(event::SaveError{link_.number(), step, error, parts_.session->failures});
}

bool SaveShell::restore_holds_memory() const {
  return parts_.session->offer.holds_memory_of(link_.number());
}

}  // namespace bellows
