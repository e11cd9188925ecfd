// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/shard_loop.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace bellows::ps {

ShardLoop::ShardLoop(ShardSteps steps, Mode mode, Fence fence, std::optional<ShardCut> cut)
    : steps_(std::move(steps)), mode_(mode), fence_(std::move(fence)), cut_(cut) {}

unsigned ShardLoop::turn(std::span<const Member> members, std::uint64_t limit,
                         std::uint64_t generation) {
  if (cut_) cut_->look(steps_, members, generation);
  std::vector<const Member*> found;
  const Member* missing = nullptr;
  unsigned updates = 0;
  for (const Member& member : members) {
    if (steps_.current().version >= limit) return updates;
    const auto seen = steps_.look(member);
    if (seen == ShardSteps::Found::nonsense)
      fence(member, "what it says that it published makes no sense");
    if (seen == ShardSteps::Found::nonsense || seen == ShardSteps::Found::fenced) continue;
    // One that has ended, and of which all is applied, is not waited for.
    if (!member.last && seen != ShardSteps::Found::gradient) missing = &member;
    if (seen != ShardSteps::Found::gradient) continue;
    found.push_back(&member);
    if (mode_ == Mode::synchronous) continue;
    if (allows(member)) updates += update(members, found);
    found.clear();
  }
  if (mode_ != Mode::synchronous || found.empty()) return updates;
  steps_.tell_missing(missing);
  if (missing) return updates;
  // Of a step all shards apply all gradients.
  if (std::none_of(found.begin(), found.end(), [this](const auto* one) { return allows(*one); }))
    return updates;
  return update(members, found);
}

void ShardLoop::fence(const Member& member, const std::string& why) const {
  // First, so that a server that ends now leaves no doubt.
  steps_.fence(member);
  fence_(member, why);
}

/// How many gradients it has applied: none if one of them makes no sense.
unsigned ShardLoop::update(std::span<const Member> members, std::span<const Member* const> from) {
  steps_.begin_choice();
  for (const Member& member : members) steps_.read_pin(member);
  const std::uint32_t buffer = steps_.choose();
  if (const auto nonsense = steps_.apply(buffer, from)) {
    fence(*from[nonsense->gradient], nonsense->why);
    return 0;
  }
  steps_.count(from);
  steps_.record(buffer, from);
  steps_.flip(buffer);
  if (steps_.must_wake(from)) steps_.wake();
  tell_slowest(members);
  return static_cast<unsigned>(from.size());
}

}  // namespace bellows::ps
