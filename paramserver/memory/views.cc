// SPDX-License-Identifier: Apache-2.0
#include "paramserver/memory/views.h"

namespace bellows::ps {
namespace {

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

std::uint64_t shards_at() { return rounded(sizeof(ControlHeader), kApart); }

std::uint64_t fences_at(const Geometry& g) {
  return shards_at() + g.shards * std::uint64_t{sizeof(ShardWords)};
}

std::uint64_t records_at(const Geometry& g) {
  return rounded(fences_at(g) + g.learners * sizeof(Half), kApart);
}

/// Behind the record of the version.
std::uint64_t learners_at() { return rounded(sizeof(VersionRecord), alignof(LearnerRecord)); }

std::uint64_t record_stride(const Geometry& g) {
  return rounded(learners_at() + g.learners * sizeof(LearnerRecord), kApart);
}

std::uint64_t pins_at() { return rounded(sizeof(SlotHeader), kApart); }

std::uint64_t payloads_at(const Geometry& g) {
  return rounded(pins_at() + 3 * g.shards * sizeof(Word), kPage);
}

std::uint64_t payload_stride(const Geometry& g) {
  return rounded(g.elements * g.gradient_bytes, kPage);
}

std::uint64_t rows_at(const Geometry& g) { return payloads_at(g) + 2 * payload_stride(g); }

std::uint64_t rows_stride(const Geometry& g) {
  return rounded(g.row_words * sizeof(std::uint64_t), kPage);
}

std::uint64_t array_stride(const ShardWords& shard) {
  return rounded(shard.count * sizeof(float), kPage);
}

}  // namespace

bool Geometry::is_valid() const {
  return learners >= 1 && learners <= kMostLearners && shards >= 1 && shards <= kMostShards &&
         (gradient_bytes == 2 || gradient_bytes == 4) && states <= 2 && elements >= 1 &&
         elements <= kMostElements &&
         // For a tensor a number, and as many as it has rows: at most two words an element.
         row_words <= 2 * elements;
}

std::uint64_t ControlView::bytes(const Geometry& g) {
  return rounded(records_at(g) + std::uint64_t{g.shards} * g.buffers() * record_stride(g), kPage);
}

ShardWords& ControlView::shard(std::uint32_t shard) const {
  return at<ShardWords>(shards_at() + shard * std::uint64_t{sizeof(ShardWords)});
}

Half& ControlView::fenced(std::uint32_t learner) const {
  return at<Half>(fences_at(geometry_) + learner * sizeof(Half));
}

std::uint64_t ControlView::record_at(std::uint32_t shard, std::uint32_t buffer) const {
  const std::uint64_t number = std::uint64_t{shard} * geometry_.buffers() + buffer;
  return records_at(geometry_) + number * record_stride(geometry_);
}

VersionRecord& ControlView::record(std::uint32_t shard, std::uint32_t buffer) const {
  return at<VersionRecord>(record_at(shard, buffer));
}

LearnerRecord& ControlView::record(std::uint32_t shard, std::uint32_t buffer,
                                   std::uint32_t learner) const {
  return at<LearnerRecord>(record_at(shard, buffer) + learners_at() +
                           learner * sizeof(LearnerRecord));
}

std::uint64_t SlotView::bytes(const Geometry& g) { return rows_at(g) + 2 * rows_stride(g); }

Word& SlotView::pin(std::uint32_t shard) const {
  return *reinterpret_cast<Word*>(memory_ + pins_at() + shard * sizeof(Word));
}

Word& SlotView::pulled(std::uint32_t sequence, std::uint32_t shard) const {
  return pin((1 + sequence % 2) * geometry_.shards + shard);
}

unsigned char* SlotView::payload(std::uint32_t sequence, std::uint64_t element) const {
  return memory_ + payloads_at(geometry_) + (sequence % 2) * payload_stride(geometry_) +
         element * geometry_.gradient_bytes;
}

std::uint64_t* SlotView::rows(std::uint32_t sequence, std::uint64_t word) const {
  return reinterpret_cast<std::uint64_t*>(memory_ + rows_at(geometry_) +
                                          (sequence % 2) * rows_stride(geometry_)) +
         word;
}

std::uint64_t ArrayView::bytes(const ControlView& control, std::uint32_t copies) {
  std::uint64_t all = 0;
  for (std::uint32_t s = 0; s < control.geometry().shards; ++s)
    all += copies * array_stride(control.shard(s));
  return all;
}

float* ArrayView::buffer(std::uint32_t shard, std::uint32_t copy) const {
  std::uint64_t at = copy * array_stride(control_.shard(shard));
  for (std::uint32_t s = 0; s < shard; ++s) at += copies_ * array_stride(control_.shard(s));
  return reinterpret_cast<float*>(memory_ + at);
}

}  // namespace bellows::ps
