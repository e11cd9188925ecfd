// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace bellows {

/// Says something on standard error, in a line that begins with the program's name. Nobody waits
/// for who reads it, since other programs can bring lines about: what finds no room is lost.
void say_line(std::string_view program, const std::string& text);

}  // namespace bellows
