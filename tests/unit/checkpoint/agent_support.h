// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/agent/agent.h"
#include "checkpoint/protocol/protocol.h"
#include "common/fd.h"

// What the tests of the agent and of its protocol share: what a launcher says.
namespace bellows::checkpoint_test {

inline command::Hello hello_for(const std::string& dir, int attempt,
                                std::map<std::string, std::vector<std::uint32_t>> ranks) {
  command::Hello hello;
  hello.dir = dir;
  hello.attempt = "7.0." + std::to_string(attempt);
  hello.leader = ranks.begin()->first;
  for (const auto& [node, list] : ranks) hello.world += static_cast<std::uint32_t>(list.size());
  hello.ranks = std::move(ranks);
  return hello;
}

/// The step of a decision about a save: commit, committed or failed. Those are all that a
/// Coordinator gives.
inline std::uint64_t step_of(const Command& decision) {
  if (const auto* commit = std::get_if<command::Commit>(&decision.body)) return commit->step;
  if (const auto* done = std::get_if<command::Committed>(&decision.body)) return done->step;
  return std::get<command::Failed>(decision.body).step;
}

/// The launcher's ends of an agent's pipes.
class AgentPipes {
 public:
  void tell(const Command& command) {
    // As the launcher sets it for the ranks that it starts then.
    if (const auto* hello = std::get_if<command::Hello>(&command.body))
      setenv("BELLOWS_ATTEMPT", hello->attempt.c_str(), 1);
    tell_line(to_line(command));
  }
  void tell(Command::Body body) { tell(Command{std::move(body)}); }
  void tell_line(const std::string& line) {
    if (!write_all(to_.get(), line + "\n", "pipe")) abort();
  }
  /// The next event but progress without a signal; nothing when none comes within ten seconds.
  std::optional<Event> next() {
    while (true) {
      const auto end = text_.find('\n');
      if (end != std::string::npos) {
        auto event = parse_event(text_.substr(0, end));
        text_.erase(0, end + 1);
        if (!event) return {};
        const auto* progress = std::get_if<event::Progress>(&event->body);
        if (!progress || progress->signal != event::Progress::Signal::none) return *event;
        continue;
      }
      pollfd p = {from_.get(), POLLIN, 0};
      char chunk[65536];
      if (poll(&p, 1, 10000) <= 0) return {};
      const ssize_t got = read(from_.get(), chunk, sizeof chunk);
      if (got <= 0) return {};
      text_.append(chunk, static_cast<std::size_t>(got));
    }
  }
  /// The next event of this type, and in `node` whose agent says it.
  template <typename Body>
  std::optional<Body> await(std::string* node = nullptr) {
    while (auto event = next()) {
      auto* body = std::get_if<Body>(&event->body);
      if (!body) continue;
      if (node) *node = event->node;
      return std::move(*body);
    }
    return {};
  }

 protected:
  void open_pipes(AgentOptions* options) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) abort();
    to_.reset(in[1]);
    from_.reset(out[0]);
    options->in_fd = in[0];
    options->out_fd = out[1];
  }
  /// An agent in a process of its own.
  pid_t start_agent(const std::string& node, const std::string& socket_path) {
    AgentOptions options;
    open_pipes(&options);
    options.node = node;
    options.socket_path = socket_path;
    setenv("BELLOWS_SOCKET", socket_path.c_str(), 1);
    const pid_t pid = fork();
    if (pid == 0) {
      to_.reset();
      _exit(agent_main(options));
    }
    close(options.in_fd);
    close(options.out_fd);
    return pid;
  }
  Fd to_, from_;

 private:
  std::string text_;
};

}  // namespace bellows::checkpoint_test
