// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format/shard_copy.h"

#include <utility>

namespace bellows {

void KeptCopies::keep(std::shared_ptr<const ShardCopy> copy) {
  auto& of_rank = copies_[copy->file.rank];
  of_rank.insert_or_assign(copy->step, std::move(copy));
}

void KeptCopies::keep_only(std::uint64_t step) {
  drop_older(step);
  for (auto& [rank, of_rank] : copies_) of_rank.erase(of_rank.upper_bound(step), of_rank.end());
  std::erase_if(copies_, [](const auto& one) { return one.second.empty(); });
}

void KeptCopies::drop_older(std::uint64_t step) {
  for (auto& [rank, of_rank] : copies_) of_rank.erase(of_rank.begin(), of_rank.lower_bound(step));
  std::erase_if(copies_, [](const auto& one) { return one.second.empty(); });
}

ShardCopies KeptCopies::of(std::uint64_t step) const {
  ShardCopies out;
  for (const auto& [rank, of_rank] : copies_) {
    if (const auto found = of_rank.find(step); found != of_rank.end()) out[rank] = found->second;
  }
  return out;
}

std::uint64_t KeptCopies::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [rank, of_rank] : copies_) {
    for (const auto& [step, copy] : of_rank) sum += copy->arrays->size();
  }
  return sum;
}

}  // namespace bellows
