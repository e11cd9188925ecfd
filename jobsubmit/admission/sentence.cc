// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/admission/sentence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text.h"
#include "jobsubmit/admission/admission.h"

namespace bellows {

std::string shown(std::string_view text, std::size_t most) {
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return out;
}

std::string hint(std::string_view word, const std::vector<std::string>& known) {
  const std::string match = nearest(word, known);
  return match.empty() ? fmt::format("known are {}", fmt::join(known, ", "))
                       : fmt::format("did you mean \"{}\"?", match);
}

std::string duration(std::uint32_t minutes) {
  if (minutes == kUnlimited) return "unlimited";
  const std::uint32_t days = minutes / (24 * 60);
  const std::uint32_t hours = minutes / 60 % 24;
  return days > 0 ? fmt::format("{}-{:02}:{:02}:00", days, hours, minutes % 60)
                  : fmt::format("{}:{:02}:00", hours, minutes % 60);
}

}  // namespace bellows
