// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/memory/layout.h"

namespace bellows::ps {

/// Where things lie in `control`. A learner has it for reading only: what is const here.
class ControlView {
 public:
  static std::uint64_t bytes(const Geometry& geometry);

  ControlView() = default;
  /// Of memory of so many bytes that is mapped, and stays so.
  ControlView(unsigned char* memory, const Geometry& geometry)
      : memory_(memory), geometry_(geometry) {}

  const Geometry& geometry() const { return geometry_; }
  ControlHeader& header() const { return at<ControlHeader>(0); }
  ShardWords& shard(std::uint32_t shard) const;
  /// Sequentially consistent.
  Current current(std::uint32_t shard) const {
    return Current::of(this->shard(shard).current.load());
  }
  /// The incarnation of a learner of which nothing is applied any more: what it said made no sense.
  Half& fenced(std::uint32_t learner) const;
  VersionRecord& record(std::uint32_t shard, std::uint32_t buffer) const;
  LearnerRecord& record(std::uint32_t shard, std::uint32_t buffer, std::uint32_t learner) const;

 private:
  template <typename T>
  T& at(std::uint64_t offset) const {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  std::uint64_t record_at(std::uint32_t shard, std::uint32_t buffer) const;

  unsigned char* memory_ = nullptr;
  Geometry geometry_;
};

/// Where things lie in a learner's slot. The server has it for reading only.
class SlotView {
 public:
  static std::uint64_t bytes(const Geometry& geometry);

  SlotView() = default;
  SlotView(unsigned char* memory, const Geometry& geometry)
      : memory_(memory), geometry_(geometry) {}

  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(memory_); }
  /// The Current that the learner reads.
  Word& pin(std::uint32_t shard) const;
  /// The version that the gradient of a sequence was computed of.
  Word& pulled(std::uint32_t sequence, std::uint32_t shard) const;
  /// The gradient of a sequence, from an element on.
  unsigned char* payload(std::uint32_t sequence, std::uint64_t element) const;
  /// What the gradient of a sequence says of rows, from one of Geometry::row_words on.
  std::uint64_t* rows(std::uint32_t sequence, std::uint64_t word) const;

 private:
  unsigned char* memory_ = nullptr;
  Geometry geometry_;
};

/// Where the buffers of weights and of states lie.
class ArrayView {
 public:
  /// Of `copies` buffers for each shard; the shards' begins and counts are those of `control`.
  static std::uint64_t bytes(const ControlView& control, std::uint32_t copies);

  ArrayView() = default;
  ArrayView(unsigned char* memory, const ControlView& control, std::uint32_t copies)
      : memory_(memory), control_(control), copies_(copies) {}

  float* buffer(std::uint32_t shard, std::uint32_t copy) const;

 private:
  unsigned char* memory_ = nullptr;
  ControlView control_;
  std::uint32_t copies_ = 0;
};

}  // namespace bellows::ps
