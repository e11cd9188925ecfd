// SPDX-License-Identifier: Apache-2.0
// What bellows-ps calls of fmt, inside it: images do not have the library, and Debian has no
// archive to link.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace bellows::ps {

/// Has the compiler emit what is inline here.
extern std::string (*const kFormat)(fmt::string_view, fmt::format_args);
std::string (*const kFormat)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace bellows::ps
