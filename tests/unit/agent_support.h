// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/protocol.h"

// What the tests of the agent and of its protocol share: what a launcher says.
namespace bellows::checkpoint_test {

inline Command command_of(Command::Kind kind, std::optional<std::uint64_t> step = {}) {
  Command c;
  c.kind = kind;
  c.step = step;
  return c;
}

inline Command hello_for(const std::string& dir, int attempt,
                         std::map<std::string, std::vector<std::uint32_t>> ranks) {
  Command hello = command_of(Command::Kind::hello);
  hello.dir = dir;
  hello.attempt = "7.0." + std::to_string(attempt);
  hello.leader = ranks.begin()->first;
  for (const auto& [node, list] : ranks) hello.world += static_cast<std::uint32_t>(list.size());
  hello.ranks = std::move(ranks);
  return hello;
}

}  // namespace bellows::checkpoint_test
