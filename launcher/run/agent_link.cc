// SPDX-License-Identifier: Apache-2.0
#include "launcher/run/agent_link.h"

#include <fmt/core.h>

#include <utility>

#include "launcher/ranks/task_end.h"

namespace bellows {
namespace {

constexpr std::size_t kMostWords = 200;

}  // namespace

Result<AgentLink> AgentLink::start(const RankLayout& layout, const Options& options) {
  ChildOptions child;
  child.command = {"srun", "--quiet", "--kill-on-bad-exit=1", "--job-name=" + options.step_name};
  for (std::string& option : layout.agent_options()) child.command.push_back(std::move(option));
  child.command.insert(child.command.end(),
                       {options.program, "agent", "--job", "--socket", options.socket_path});
  child.environment = options.environment;
  child.pipe_in = true;
  child.pipe_out = true;
  child.pipe_err = true;
  auto started = Child::start(child);
  if (!started) return started.error();
  return AgentLink(std::move(*started), layout.nodes());
}

void AgentLink::send(const Command& command) {
  writer_.add(to_line(command));
  if (child_.in() >= 0) writer_.flush(child_.in());
}

void AgentLink::add_poll(std::vector<pollfd>& fds) const {
  if (child_.out() >= 0) fds.push_back({child_.out(), POLLIN, 0});
  if (child_.err() >= 0) fds.push_back({child_.err(), POLLIN, 0});
  if (child_.in() >= 0 && !writer_.empty()) fds.push_back({child_.in(), POLLOUT, 0});
}

std::vector<Event> AgentLink::exchange() {
  if (child_.in() >= 0 && !writer_.flush(child_.in())) child_.close_in();
  bool open = child_.out() < 0 || reader_.fill(child_.out());
  std::vector<Event> events;
  while (auto line = reader_.next()) {
    if (line->empty()) continue;
    auto event = parse_event(*line);
    spoke_ |= event.ok();
    if (event.ok())
      events.push_back(std::move(*event));
    else
      errors_.push_back(
          fmt::format("bellows run: an agent's line is not understood: {:.200}", *line));
  }
  if (!open) child_.close_out();
  read_errors();
  return events;
}

void AgentLink::note_loss(std::string_view text) {
  if (auto node = text_after(text, "Node failure on ")) {
    lost_node_ = *node;
    loss_ = fmt::format("node {} was lost", lost_node_);
  } else if (auto end = parse_task_end(text)) {
    loss_ = fmt::format("the {} on {} {}", end->several ? "agents" : "agent", end->nodes, end->how);
  }
}

void AgentLink::read_errors() {
  const bool open = child_.err() < 0 || error_reader_.fill(child_.err());
  while (auto line = error_reader_.next()) {
    if (auto text = text_after(*line, "srun: error: "); text && loss_.empty()) note_loss(*text);
    if (loss_.empty() && !spoke_) last_words_ = line->substr(0, kMostWords);
    errors_.push_back(std::move(*line));
  }
  if (!open) child_.close_err();
}

std::string AgentLink::end() {
  std::string end = loss_;
  if (auto exit = child_.poll_exit(); exit && end.empty())
    end = "the agents' step " + exit->to_string();
  if (!spoke_ && !last_words_.empty()) end += "; its last output: " + last_words_;
  return end;
}

std::vector<std::string> AgentLink::take_errors() { return std::exchange(errors_, {}); }

}  // namespace bellows
