// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "checkpoint/system/memory_bin.h"
#include "checkpoint/wire/wire.h"
#include "common/fd.h"
#include "common/result.h"

namespace bellows {

/// Memory that the agent and one rank map: a memfd sealed against changes of its size, so that
/// neither side can make the other fault. Owns the mapping and the descriptor.
class SharedMemory {
 public:
  /// Pages are reserved at once: unavailable when the machine or the job has too little memory.
  /// With a bin, that frees it in the end, and what it has yet to free is freed first.
  static Result<std::shared_ptr<SharedMemory>> make(std::uint64_t bytes,
                                                    const std::shared_ptr<MemoryBin>& bin = {});
  /// Without pages, and without waiting for the bin.
  static Result<std::shared_ptr<SharedMemory>> make_empty(
      std::uint64_t bytes, const std::shared_ptr<MemoryBin>& bin = {});
  SharedMemory(Fd fd, std::uint64_t size) : fd_(std::move(fd)), size_(size) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  unsigned char* data() const { return data_; }
  std::uint64_t size() const { return size_; }

  /// Reserves pages; unavailable as above.
  Status reserve(std::uint64_t begin, std::uint64_t bytes);
  /// Clears the pages that are reserved, which else each process waits for that touches one first.
  void fill_pages() const;
  /// From here on nobody can write to it but who has it mapped for that already. Kernels before 5.1
  /// don't know that.
  void refuse_writers() const;
  /// Another descriptor of it, with which it can only be read.
  Result<Fd> reader() const;

 private:
  friend class MemoryBin;

  Fd fd_;
  unsigned char* data_ = nullptr;
  std::uint64_t size_;
  SharedMemory* next_ = nullptr;  ///< in a bin
};

using MadeMemory = Result<std::shared_ptr<SharedMemory>>;

/// The page a rank publishes its step on and finds gate and stop on.
class ControlPage {
 public:
  static Result<std::unique_ptr<ControlPage>> make(std::uint64_t gate, std::uint64_t stop);
  explicit ControlPage(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  int fd() const { return memory_->fd(); }
  /// wire::kNoStep: none yet. What the rank wrote: not to be trusted for more than a decision.
  std::uint64_t step() const { return page()->step.load(); }
  /// What its program says of the training, 0 if it says nothing or what cannot be; not to be
  /// trusted either.
  std::uint64_t batch() const { return sensible(page()->batch.load()); }
  std::uint64_t noise_scale() const { return sensible(page()->noise_scale.load()); }
  /// Wakes the rank when it waits.
  void set_gate(std::uint64_t gate);
  void set_stop(std::uint64_t stop);
  /// Slurm has told this agent that the end is near: a signal to the rank is that news.
  void announce() { page()->announced.store(1); }

 private:
  wire::Control* page() const { return reinterpret_cast<wire::Control*>(memory_->data()); }
  static std::uint64_t sensible(std::uint64_t samples) {
    return samples <= wire::kMostSamples ? samples : 0;
  }
  void wake();

  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace bellows
