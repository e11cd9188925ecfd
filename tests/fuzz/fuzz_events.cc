// SPDX-License-Identifier: Apache-2.0
/// An event file as a full disk, two machines or another user would leave it. The checksum would
/// stop nearly all mutations at the door, so each line is also tried with one that fits.

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/record/event_log.h"

namespace {

constexpr std::uint32_t kJob = 7;

bellows::EventLines check(std::string_view text) {
  bellows::EventLines lines = bellows::parse_events(text, kJob);
  for (const bellows::JobEvent& event : lines.events) {
    if (event.job != kJob || !(event.time >= 0)) std::abort();
    const auto again = bellows::JobEvent::from_line(event.to_line());
    if (!again || again->to_line() != event.to_line()) std::abort();
  }
  return lines;
}

std::string with_sum(std::string_view text) {
  char sum[17];
  std::snprintf(sum, sizeof sum, "%016llx",
                static_cast<unsigned long long>(XXH64(text.data(), text.size(), 0)));
  return std::string(text) + ",\"sum\":\"" + sum + "\"}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  const std::size_t before = check(std::string(text) + "\n").events.size();
  // Whatever stands before it, a whole event is found.
  const bellows::JobEvent event{1, kJob, 0, 1, "PROCESSING", "", 1, {}, {}, {}};
  const auto with_event = check(std::string(text) + event.to_line() + "\n");
  if (size < 60000 && with_event.events.empty()) std::abort();
  if (check(std::string(text) + "\n" + event.to_line() + "\n").events.size() != before + 1)
    std::abort();
  check(with_sum(text.substr(0, text.rfind('}'))));
  return 0;
}
