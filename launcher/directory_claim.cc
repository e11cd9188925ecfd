// SPDX-License-Identifier: Apache-2.0
#include "launcher/directory_claim.h"

#include "checkpoint/store_writer.h"

namespace bellows {

DirectoryOwner owner_of(const std::string& checkpoint_dir) {
  const auto text = read_owner(checkpoint_dir);
  const auto owner = text ? parse_owner(*text) : std::nullopt;
  if (!owner) return {};
  return {owner->attempt, RunName::of_attempt(owner->attempt), owner->time};
}

}  // namespace bellows
