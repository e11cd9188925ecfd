// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bellows {

/// "512 bytes", "1.5 GiB".
std::string size_text(std::uint64_t bytes);

}  // namespace bellows
