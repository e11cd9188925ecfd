// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bellows {

/// Whether the page cache holds all of a mapping of a file; `begin`: of a page.
bool pages_are_cached(void* begin, std::uint64_t bytes);

/// Whether the page cache holds all of the file.
bool is_cached(int fd, std::uint64_t size);

}  // namespace bellows
