// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/node_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/own_process.h"
#include "common/text.h"
#include "slurm/gres.h"

namespace bellows {
namespace {

constexpr auto kAnswersWithin = std::chrono::seconds(30);
/// A line is about a kilobyte, and no cluster has a million nodes.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

std::set<std::string> names_in(std::string_view text, char separator) {
  std::set<std::string> names;
  for (std::string_view name : split(text, separator)) {
    while (!name.empty() &&
           std::string_view("*~#!%$@^-").find(name.back()) != std::string_view::npos)
      name.remove_suffix(1);
    if (!name.empty()) names.emplace(name);
  }
  return names;
}

NodeReport parse_node(std::string_view line) {
  NodeReport node;
  for (std::string_view word : split(line, ' ')) {
    const std::size_t at = word.find('=');
    if (at == std::string_view::npos) continue;
    const std::string_view key = word.substr(0, at);
    const std::string_view value = word.substr(at + 1);
    // People write the reason, and it comes last.
    if (key == "Reason" || key == "Comment" || key == "Extra") break;
    if (key == "NodeName") node.name = value;
    if (key == "State") node.states = names_in(value, '+');
    if (key == "Partitions") node.partitions = names_in(value, ',');
    if (key == "Gres") node.gpus = gpus_in_gres(value);
    if (key == "GresUsed") node.gpus_used = gpus_in_gres(value);
  }
  return node;
}

}  // namespace

bool NodeReport::draining() const {
  return states.contains("DRAIN") || states.contains("DRAINING") || states.contains("DRAINED");
}

bool NodeReport::usable() const {
  for (const std::string& state : states)
    if (state != "IDLE" && state != "MIXED" && state != "PLANNED" && state != "CLOUD" &&
        state != "DYNAMIC_NORM" && state != "COMPLETING")
      return false;
  return !states.empty();
}

std::vector<NodeReport> parse_node_reports(std::string_view text) {
  std::vector<NodeReport> nodes;
  for (std::string_view line : split(text, '\n')) {
    NodeReport node = parse_node(line);
    if (!node.name.empty() && !node.states.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

void NodeWatch::ask(const std::vector<std::string>& nodes, Clock::time_point now) {
  ChildOptions options;
  options.command = {"scontrol", "--oneliner", "--detail", "show", "node"};
  if (!nodes.empty()) options.command.push_back(fmt::format("{}", fmt::join(nodes, ",")));
  options.environment = own_environment();
  options.pipe_out = options.pipe_err = true;
  child_.reset();
  text_.clear();
  until_ = now + kAnswersWithin;
  if (auto child = Child::start(options)) child_.emplace(std::move(*child));
}

std::optional<std::vector<NodeReport>> NodeWatch::poll(Clock::time_point now) {
  if (!child_) return std::nullopt;
  const bool ended = child_->poll_exit().has_value();
  std::array<char, 65536> bytes;
  for (ssize_t got; text_.size() < kMostBytes;
       text_.append(bytes.data(), static_cast<std::size_t>(got))) {
    got = read(child_->out(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR)
      got = 0;
    else if (got <= 0)
      break;
  }
  if (!ended && now < until_) return std::nullopt;
  const bool good = ended && child_->poll_exit()->ok();
  child_.reset();
  if (!good) return std::nullopt;
  return parse_node_reports(text_);
}

}  // namespace bellows
