// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// What a program and the agent of its member say to each other: a line of text in each packet of a
/// SOCK_SEQPACKET socket. From the program: "metric NAME VALUE", "vote N", "listen PORT", "ready",
/// "watch"; from the agent, to those that watch: "drain SECONDS" and "size N".
namespace bellows::pool {

/// The longest line, in bytes.
inline constexpr std::size_t kLongestLine = 512;
/// How long a program waits for an agent that has no time.
inline constexpr int kAgentWaitMs = 2000;

}  // namespace bellows::pool
