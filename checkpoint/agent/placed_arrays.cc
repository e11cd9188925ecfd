// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/placed_arrays.h"

#include "checkpoint/wire/wire.h"

namespace bellows {

bool place_parts(const std::vector<ArrayPart>& parts, Placed* out) {
  wire::Placer placer;
  for (const ArrayPart& part : parts) {
    std::uint64_t offset = 0;
    if (!placer.place(part.bytes(), &offset)) return false;
    out->parts.push_back(part);
    out->offsets.push_back(offset);
  }
  out->total = placer.total();
  return true;
}

}  // namespace bellows
