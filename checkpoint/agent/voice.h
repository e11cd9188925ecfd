// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/protocol/protocol.h"
#include "common/result.h"

namespace bellows {

/// What an agent says to who tells it what to do, with its node's name.
class Voice {
 public:
  using Emit = std::function<void(const Event&)>;

  Voice(std::string node, Emit emit);
  const std::string& node() const { return node_; }
  void say(Event::Body event);
  /// The command failed.
  void say_error(const char* cmd, std::optional<std::uint64_t> step, const Error& error);

 private:
  std::string node_;
  Emit emit_;
};

}  // namespace bellows
