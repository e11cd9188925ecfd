// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/size_text.h"

#include <fmt/core.h>

namespace bellows {

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  while (size >= 1023.95 && unit < 5) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

}  // namespace bellows
