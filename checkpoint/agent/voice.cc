// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/voice.h"

#include <utility>

namespace bellows {

Event event_of(Event::Kind kind, std::optional<std::uint64_t> step) {
  Event e;
  e.kind = kind;
  e.step = step;
  return e;
}

Event event_of_rank(Event::Kind kind, std::uint32_t rank) {
  Event e;
  e.kind = kind;
  e.rank = rank;
  return e;
}

Voice::Voice(std::string node, Emit emit) : node_(std::move(node)), emit_(std::move(emit)) {}

void Voice::say(Event event) {
  event.node = node_;
  emit_(event);
}

void Voice::say_error(const char* cmd, std::optional<std::uint64_t> step, const Error& error) {
  Event e = event_of(Event::Kind::error, step);
  e.cmd = cmd;
  e.error = error.text;
  e.error_kind = error.kind;
  say(std::move(e));
}

}  // namespace bellows
