// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bellows {

/// Columns of the terminal that `fd` is, 80 if the terminal does not say; 0 if it is not a
/// terminal.
std::size_t terminal_width(int fd);

/// Characters of a text in UTF-8: those that take two columns count as one.
std::size_t shown_width(std::string_view text);

/// At most `width` characters, the last three of them dots where something was left out.
std::string cut_to(const std::string& text, std::size_t width);

/// Breaks a text at its blanks so that no line is longer than `width`, where that is possible. All
/// lines but the first begin with `indent` blanks, and for the first one as many are used up
/// already. A newline in the text stays. `width` 0: no line is broken.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace bellows
