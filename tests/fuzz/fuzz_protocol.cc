// SPDX-License-Identifier: Apache-2.0
/// Lines between the launcher and its agents: a value that comes back the same, or a sentence.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/protocol/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  if (const auto command = bellows::parse_command(line)) {
    const std::string text = bellows::to_line(*command);
    const auto again = bellows::parse_command(text);
    if (!again || bellows::to_line(*again) != text) std::abort();
  } else if (command.error().text.empty()) {
    std::abort();
  }
  if (const auto event = bellows::parse_event(line)) {
    const std::string text = bellows::to_line(*event);
    const auto again = bellows::parse_event(text);
    if (!again || bellows::to_line(*again) != text) std::abort();
  } else if (event.error().text.empty()) {
    std::abort();
  }
  return 0;
}
