// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace bellows::modelwire {

/// Whether a field of a message holds a text of `length` bytes without a zero, and zeros behind it,
/// so that it can be read as a string and says nothing else.
template <std::size_t kBytes>
bool is_fixed_text(const char (&field)[kBytes], std::size_t length) {
  if (length >= kBytes) return false;
  for (std::size_t i = 0; i < kBytes; ++i)
    if ((field[i] == 0) != (i >= length)) return false;
  return true;
}

}  // namespace bellows::modelwire
