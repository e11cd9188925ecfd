// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/voice.h"

#include <utility>

namespace bellows {

Voice::Voice(std::string node, Emit emit) : node_(std::move(node)), emit_(std::move(emit)) {}

void Voice::say(Event::Body event) { emit_({std::move(event), node_}); }

void Voice::say_error(const char* cmd, std::optional<std::uint64_t> step, const Error& error) {
  say(event::CommandFailed{cmd, step, error});
}

}  // namespace bellows
