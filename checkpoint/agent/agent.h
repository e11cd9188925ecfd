// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bellows {

/// How one agent is to run. A value.
struct AgentOptions {
  enum class Mode {
    job,        ///< commands as JSON lines on in_fd, events on out_fd; ends at end of file on in_fd
    standalone  ///< coordinates by itself; ends when the last rank has left
  };

  Mode mode = Mode::job;
  /// The unix socket to serve ranks on. Its directory is made with mode 0700 when missing, and must
  /// belong to this user and be closed to others. Empty in job mode: $BELLOWS_RUN_DIR/agent.sock.
  std::string socket_path;
  /// The node's name in events. Empty: $SLURMD_NODENAME, else the host name.
  std::string node;
  std::string dir;               ///< standalone: the checkpoint directory, made when missing
  std::uint32_t world = 1;       ///< standalone: number of ranks
  std::uint32_t keep = 3;        ///< standalone: committed steps to keep, at least 1
  std::uint64_t keep_every = 0;  ///< standalone: besides, each step divisible by this; 0: none
  /// A gate without a decision is dropped after this long, so that a silent launcher stalls nobody.
  int gate_limit_ms = 60000;
  int in_fd = 0;
  int out_fd =
      1;  ///< standalone: gets one line, `ready`, or `error TEXT`, and is not used after it
};

/// Serves the ranks of one node until the work is over: blocks, single caller, starts threads of
/// its own and joins them. Ignores SIGPIPE and SIGXFSZ for the whole process. Never throws. 0:
/// ended as planned (quit, end of input, last rank gone); 1: could not start or go on, and the
/// sentence is on standard error; 2: the options contradict each other.
int agent_main(const AgentOptions& options) noexcept;

}  // namespace bellows
