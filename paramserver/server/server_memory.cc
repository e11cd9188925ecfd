// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/server_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace bellows::ps {
namespace {

/// Of a page that is written for the first time, the kernel makes it zero.
Result<Fd> make_memory(const char* name, std::uint64_t bytes) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // A learner that made its memory smaller would end the server.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) < 0)
    return Error{ErrorKind::unavailable,
                 fmt::format("cannot make {} bytes of memory: {}", bytes, std::strerror(errno))};
  return fd;
}

Status map(plain::Mapping& mapping, const Fd& fd, std::uint64_t bytes, int protection) {
  // What is never written to takes no room.
  if (mapping.map_lazily(fd.get(), bytes, protection)) {
    // Where the kernel gives shared memory huge pages to those who ask; else small ones do.
    if (bytes >= kHugeFrom) (void)madvise(mapping.data(), bytes, MADV_HUGEPAGE);
    return {};
  }
  return Error{ErrorKind::unavailable, fmt::format("cannot map {} bytes of shared memory: {}",
                                                   bytes, std::strerror(errno))};
}

constexpr int kWritable = PROT_READ | PROT_WRITE;

std::uint32_t state_copies(const Geometry& geometry) { return kStateCopies * geometry.states; }

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  std::uint64_t all = 0;
  for (std::uint64_t count : counts) all += count;
  return all;
}

Error not_whole() {
  return Error{ErrorKind::corrupt, "the memory of the parameter server that ended is not whole"};
}

}  // namespace

Result<ServerMemory> ServerMemory::make(Geometry geometry,
                                        const std::vector<std::uint64_t>& counts) {
  geometry.shards = static_cast<std::uint32_t>(counts.size());
  geometry.elements = sum(counts);
  if (!geometry.is_valid())
    return Error{ErrorKind::invalid,
                 fmt::format("a parameter server for {} learners, {} shards and {} elements is "
                             "none: there may be {}, {} and {}",
                             geometry.learners, geometry.shards, geometry.elements, kMostLearners,
                             kMostShards, kMostElements)};
  ServerMemory memory;
  const std::uint64_t bytes = ControlView::bytes(geometry);
  auto control = make_memory("bellows-ps-control", bytes);
  if (!control) return control.error();
  memory.files_.control = std::move(*control);
  if (auto mapped = map(*memory.control_, memory.files_.control, bytes, kWritable); !mapped)
    return mapped.error();
  memory.control_view_ = ControlView(memory.control_->data(), geometry);
  std::uint64_t begin = 0;
  for (std::uint32_t s = 0; s < geometry.shards; ++s) {
    memory.control_view_.shard(s).begin = begin;
    memory.control_view_.shard(s).count = counts[s];
    memory.control_view_.shard(s).slowest = Slowest{}.word();
    begin += counts[s];
  }
  auto weights =
      make_memory("bellows-ps-weights", ArrayView::bytes(memory.control_view_, geometry.buffers()));
  if (!weights) return weights.error();
  memory.files_.weights = std::move(*weights);
  if (geometry.states > 0) {
    auto states = make_memory("bellows-ps-states",
                              ArrayView::bytes(memory.control_view_, state_copies(geometry)));
    if (!states) return states.error();
    memory.files_.states = std::move(*states);
  }
  if (auto mapped = memory.map_arrays(); !mapped) return mapped.error();
  memory.control_view_.header().geometry = geometry;
  memory.control_view_.header().layout = kLayout;
  // Last: a server that ended before has left nothing to go on from.
  std::atomic_ref(memory.control_view_.header().magic).store(kMagic);
  return memory;
}

Result<ServerMemory> ServerMemory::adopt(MemoryFiles files) {
  ServerMemory memory;
  memory.files_ = std::move(files);
  struct stat info;
  if (fstat(memory.files_.control.get(), &info) < 0 ||
      static_cast<std::uint64_t>(info.st_size) < sizeof(ControlHeader))
    return not_whole();
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (auto mapped = map(*memory.control_, memory.files_.control, bytes, kWritable); !mapped)
    return mapped.error();
  const auto& header = *reinterpret_cast<const ControlHeader*>(memory.control_->data());
  const Geometry geometry = header.geometry;
  if (header.magic != kMagic || header.layout != kLayout || !geometry.is_valid() ||
      ControlView::bytes(geometry) != bytes)
    return not_whole();
  memory.control_view_ = ControlView(memory.control_->data(), geometry);
  std::uint64_t begin = 0;
  for (std::uint32_t s = 0; s < geometry.shards; ++s) {
    const ShardWords& shard = memory.control_view_.shard(s);
    const std::uint32_t buffer = memory.control_view_.current(s).buffer;
    if (shard.begin != begin || shard.count > geometry.elements - begin ||
        buffer >= geometry.buffers() ||
        memory.control_view_.record(s, buffer).state.load() >= kStateCopies)
      return not_whole();
    begin += shard.count;
  }
  if (begin != geometry.elements) return not_whole();
  if (auto mapped = memory.map_arrays(); !mapped) return mapped.error();
  return memory;
}

Status ServerMemory::map_arrays() {
  const Geometry& geometry = control_view_.geometry();
  const std::uint64_t bytes = ArrayView::bytes(control_view_, geometry.buffers());
  if (auto mapped = map(*weights_, files_.weights, bytes, kWritable); !mapped) return mapped;
  weights_view_ = ArrayView(weights_->data(), control_view_, geometry.buffers());
  if (geometry.states == 0) return {};
  const std::uint32_t copies = state_copies(geometry);
  const std::uint64_t state_bytes = ArrayView::bytes(control_view_, copies);
  if (auto mapped = map(*states_, files_.states, state_bytes, kWritable); !mapped) return mapped;
  states_view_ = ArrayView(states_->data(), control_view_, copies);
  return {};
}

Result<SlotMemory> SlotMemory::make(const Geometry& geometry, std::uint32_t base) {
  auto fd = make_memory("bellows-ps-slot", SlotView::bytes(geometry));
  if (!fd) return fd.error();
  plain::Mapping writable;
  if (auto mapped = map(writable, *fd, SlotView::bytes(geometry), kWritable); !mapped)
    return mapped.error();
  const SlotView view(writable.data(), geometry);
  view.header().published = base;
  for (float& scale : view.header().scale) scale = 1;
  for (std::uint32_t s = 0; s < geometry.shards; ++s)
    view.pin(s) = Current{0, Current::kNoBuffer}.word();
  return adopt(std::move(*fd), geometry);
}

Result<SlotMemory> SlotMemory::adopt(Fd file, const Geometry& geometry) {
  SlotMemory slot;
  slot.file_ = std::move(file);
  const std::uint64_t bytes = SlotView::bytes(geometry);
  if (auto mapped = map(*slot.mapping_, slot.file_, bytes, PROT_READ); !mapped)
    return mapped.error();
  slot.view_ = SlotView(slot.mapping_->data(), geometry);
  return slot;
}

}  // namespace bellows::ps
