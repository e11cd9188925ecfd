// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_failure.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace bellows {
namespace {

constexpr std::size_t kMostWords = 200;
/// What a shell says of a command that it does not find.
constexpr int kNotFound = 127;

// "Segmentation fault (core dumped)" as srun says it, which is strsignal's text.
std::string in_words(std::string_view what) {
  constexpr std::string_view kExit = "Exited with exit code ";
  if (what.starts_with(kExit))
    return fmt::format("exited with status {}", what.substr(kExit.size()));
  if (what.starts_with("Out Of Memory"))
    return "was killed because the job's memory limit was reached";
  for (int number = 1; number < 65; ++number) {
    const char* name = strsignal(number);
    if (name && what.starts_with(name))
      return fmt::format("was killed by signal {} ({})", number, what);
  }
  return fmt::format("ended: {}", what);
}

// The text behind `begin`, which may stand anywhere: a label or a time may come first.
std::optional<std::string_view> after(std::string_view line, std::string_view begin) {
  const std::size_t at = line.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + begin.size());
}

std::string shortened(std::string_view text) { return std::string(text.substr(0, kMostWords)); }

}  // namespace

void RankFailure::take_line(const std::string& line) {
  if (auto text = after(line, "srun: error: "); text && take_srun(std::string(*text))) return;
  // slurmstepd gives its node's name: "slurmstepd-n1: error: ".
  if (auto text = after(line, "slurmstepd"))
    if (auto error = after(*text, ": error: "); error && take_stepd(std::string(*error))) return;
  if (line.starts_with("srun: ") || line.starts_with("slurmstepd")) return;
  if (line.find_first_not_of(" \t\r") != std::string::npos) last_words_ = shortened(line);
}

// HOSTS: task LIST: WHAT.
bool RankFailure::take_srun(const std::string& text) {
  if (auto node = after(text, "Node failure on ")) {
    lost_node_ = *node;
    return true;
  }
  if (auto why = after(text, " failed on node "); why && text.starts_with("Task launch for")) {
    if (launch_.empty()) launch_ = shortened(*why);
    return true;
  }
  if (auto why = after(text, "Unable to create step for job ")) {
    const std::size_t at = why->find(": ");
    no_step_ = shortened(at == std::string::npos ? *why : why->substr(at + 2));
    return true;
  }
  for (std::string_view word : {": task ", ": tasks "}) {
    const std::size_t at = text.find(word);
    if (at == std::string::npos) continue;
    const std::size_t list = at + word.size();
    const std::size_t end = text.find(": ", list);
    if (end == std::string::npos) return false;
    const std::string what = text.substr(end + 2);
    out_of_memory_ = out_of_memory_ || what.starts_with("Out Of Memory");
    if (first_.empty())
      first_ = fmt::format("{} {} on {} {}", word == ": task " ? "rank" : "ranks",
                           text.substr(list, end - list), text.substr(0, at), in_words(what));
    return true;
  }
  return false;
}

bool RankFailure::take_stepd(const std::string& text) {
  if (text.find("oom-kill event(s)") != std::string::npos) out_of_memory_ = true;
  if (auto why = after(text, "execve(): ")) exec_ = shortened(*why);
  if (auto why = after(text, "*** STEP "); why && step_.empty()) step_ = shortened(*why);
  return true;
}

void RankFailure::lost(std::uint32_t rank, const std::string& node) {
  // Ranks that srun takes down after the first one say nothing new.
  if (lost_.empty()) lost_.add(rank, node);
}

std::string RankFailure::cause(const ChildExit& exit) const {
  if (!lost_node_.empty()) return fmt::format("node {} was lost", lost_node_);
  if (!no_step_.empty()) return fmt::format("Slurm does not start the ranks: {}", no_step_);
  if (!launch_.empty()) return fmt::format("the ranks could not be started on {}", launch_);
  if (!exec_.empty()) return fmt::format("the program could not be executed: {}", exec_);
  std::string cause = first_;
  if (cause.empty()) {
    cause = "the step of ranks " + exit.to_string();
    if (!lost_.empty()) cause += fmt::format(", and {} had gone first", lost_.to_string());
  }
  if (out_of_memory_ && cause.find("memory limit") == std::string::npos)
    cause += ", out of memory: the job's memory limit was reached";
  return cause;
}

RankFailure::Blame RankFailure::blame(const ChildExit& exit) const {
  if (!lost_node_.empty() || !launch_.empty() || !no_step_.empty()) return Blame::cluster;
  if (!exec_.empty() || exit.code() == kNotFound) return Blame::missing;
  return Blame::program;
}

}  // namespace bellows
