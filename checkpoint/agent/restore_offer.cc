// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/restore_offer.h"

#include <algorithm>
#include <utility>

namespace bellows {
namespace {

/// What is kept for slower ranks takes memory.
constexpr std::size_t kMostRestores = 4;

}  // namespace

void RestoreOffer::set(std::optional<std::uint64_t> step, std::optional<Error> none) {
  known_ = true;
  step_ = step;
  none_ = std::move(none);
}

void RestoreOffer::forgive() {
  if (step_) none_.reset();
}

void RestoreOffer::commit(std::uint64_t step) {
  set(step, {});
  shared_.clear();
}

std::shared_ptr<NodeRestore> RestoreOffer::share(
    std::uint64_t call, std::uint64_t step,
    const std::function<std::shared_ptr<NodeRestore>()>& make) {
  std::erase_if(shared_, [](const auto& entry) { return entry.second->is_over(); });
  const auto found = shared_.find(call);
  if (found != shared_.end() && found->second->step() == step) return found->second;
  auto made = make();
  shared_.insert_or_assign(call, made);
  if (shared_.size() > kMostRestores) shared_.erase(shared_.begin());
  return made;
}

void RestoreOffer::drop_copies(std::uint32_t rank) const {
  for (const auto& [call, restore] : shared_) restore->drop_copy(rank);
}

bool RestoreOffer::holds_memory_of(std::uint32_t rank) const {
  return std::any_of(shared_.begin(), shared_.end(),
                     [rank](const auto& entry) { return entry.second->holds_memory_of(rank); });
}

}  // namespace bellows
