// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/agent/agent.h"
#include "checkpoint/include/bellows.h"
#include "tests/unit/checkpoint/agent_support.h"

// What the tests of agents in job mode share: the agent on a thread, and ranks that join it.
namespace bellows::checkpoint_test {

/// One agent in job mode, on a thread, and the launcher's ends of its pipes.
class JobAgentThread : public AgentPipes {
 public:
  JobAgentThread(const std::string& dir, const std::string& node, int gate_limit_ms = 60000) {
    open_pipes(&options_);
    options_.node = node;
    options_.socket_path = dir + "/" + node;
    options_.gate_limit_ms = gate_limit_ms;
    thread_ = std::thread([this] { exit_ = agent_main(options_); });
    cr_assert(await<event::Hello>().has_value());
  }
  ~JobAgentThread() {
    end();
    close(options_.in_fd);
    close(options_.out_fd);
  }
  /// The launcher dies.
  int end() {
    to_.reset();
    if (thread_.joinable()) thread_.join();
    return exit_;
  }
  /// Without the launcher's end of file.
  int ends_alone() {
    thread_.join();
    return exit_;
  }
  const std::string& socket() const { return options_.socket_path; }

 private:
  AgentOptions options_;
  std::thread thread_;
  int exit_ = -1;
};

inline bellows_t* join(const JobAgentThread& agent, int rank, int world) {
  setenv("BELLOWS_SOCKET", agent.socket().c_str(), 1);
  bellows_config config = BELLOWS_CONFIG_INIT;
  config.rank = rank;
  config.world = world;
  bellows_t* b = nullptr;
  const int rc = bellows_init(&config, &b);
  cr_assert(rc == BELLOWS_OK, "rank %d: %s", rank, bellows_error(b));
  return b;
}

inline void add_array(bellows_t* b, std::vector<float>* data) {
  const std::uint64_t shape[] = {data->size()};
  cr_assert(bellows_register(b, "x", BELLOWS_F32, 1, shape, BELLOWS_REPLICATED, 0, 0,
                             data->data()) == BELLOWS_OK);
}

}  // namespace bellows::checkpoint_test
