// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bellows {

/// What a server said, fit for the end of one line: in parentheses, printable ASCII only, cut, and
/// without the secrets, which it may have sent back. Of S3's answers only the code and the message,
/// of a page the title. "" if nothing is left.
std::string server_text(std::string_view said, const std::vector<std::string>& secrets);

}  // namespace bellows
