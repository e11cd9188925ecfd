// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/wire/block_hash.h"

namespace bellows {

/// 32 lower-case hexadecimal digits: what `xxh128sum` prints.
std::string hex_of(const Hash128& hash);
/// What hex_of() writes; nothing for any other text.
std::optional<Hash128> parse_hash(std::string_view text);

Hash128 hash_of(const void* data, std::size_t bytes);

std::string digest_of(std::string_view data);

/// Whether the text is a digest as hex_of() writes it.
bool is_digest(std::string_view text);

}  // namespace bellows
