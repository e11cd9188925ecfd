// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/wire/wire.h"
#include "common/result.h"

namespace bellows {

/// One array as one rank holds it, or as one shard stores it.
struct ArrayPart {
  std::string name;
  wire::Array array;

  std::uint64_t bytes() const;
  /// "f32[10,5]", the global shape.
  std::string type_text() const;
};

/// "f32"; "" for a type that does not exist.
const char* dtype_name(std::uint32_t dtype);
/// The number of "f32"; 0 for a name that is none.
std::uint32_t dtype_of_name(std::string_view name);

/// What a rank registers. invalid: the sentence says what is wrong. Everything else here takes
/// checked parts only.
Status check_part(const ArrayPart& part);

/// What a shard stores: as check_part, but a replicated array may be a piece of its first axis.
Status check_stored_part(const ArrayPart& part);

}  // namespace bellows
