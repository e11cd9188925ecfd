// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/agent/session.h"

#include <fmt/core.h>

namespace bellows {

Session::Session(const command::Hello& command, const std::string& here,
                 std::chrono::milliseconds gate_limit)
    : hello(command), node(here), leader(command.leader == here), gate(gate_limit) {
  if (auto mine = command.ranks.find(here); mine != command.ranks.end()) {
    ranks.insert(mine->second.begin(), mine->second.end());
  }
}

bool Session::is_foreign(const std::string& belongs) const {
  return belongs[0] != '/' && belongs != hello.attempt;
}

std::optional<std::string> Session::refusal(const wire::Hello& rank, const std::string& belongs,
                                            bool connected) const {
  if (static_cast<std::uint32_t>(rank.world) != hello.world) {
    return fmt::format("rank {} says there are {} ranks, but this program has {}", rank.rank,
                       rank.world, hello.world);
  }
  if (belongs.starts_with('/') && belongs != hello.dir) {
    return fmt::format("this agent serves {}, not {}", hello.dir, belongs);
  }
  if (!ranks.empty() && !ranks.contains(static_cast<std::uint32_t>(rank.rank))) {
    return fmt::format("rank {} does not belong on node {}", rank.rank, node);
  }
  if (connected) {
    return fmt::format(
        "rank {} is connected already: another program uses {}, or two ranks have "
        "the same number",
        rank.rank, hello.dir);
  }
  return {};
}

}  // namespace bellows
