// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>

#include "checkpoint/agent/agent.h"

// The agent as a program of its own, so that libbellows is tested without the launcher. Takes the
// options that the library passes.
int main(int argc, char** argv) {
  bellows::AgentOptions options;
  for (int i = 2; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--standalone") {
      options.mode = bellows::AgentOptions::Mode::standalone;
      continue;
    }
    const char* value = ++i < argc ? argv[i] : "";
    if (key == "--socket") {
      options.socket_path = value;
    } else if (key == "--dir") {
      options.dir = value;
    } else if (key == "--world") {
      options.world = static_cast<std::uint32_t>(std::atoi(value));
    } else if (key == "--keep") {
      options.keep = static_cast<std::uint32_t>(std::atoi(value));
    } else if (key == "--keep-every") {
      options.keep_every = static_cast<std::uint64_t>(std::atoll(value));
    } else {
      std::fprintf(stderr, "unknown option %s\n", key.c_str());
      return 2;
    }
  }
  return bellows::agent_main(options);
}
