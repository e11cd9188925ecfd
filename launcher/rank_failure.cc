// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_failure.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace bellows {
namespace {

constexpr std::size_t kMostWords = 200;
/// Lines of srun; it groups tasks that ended alike.
constexpr std::size_t kMostEnds = 64;
/// What a shell says of a command that it does not find.
constexpr int kNotFound = 127;

std::string shortened(std::string_view text) { return std::string(text.substr(0, kMostWords)); }

}  // namespace

void RankFailure::take_line(const std::string& line) {
  if (auto text = text_after(line, "srun: error: "); text && take_srun(std::string(*text))) return;
  // slurmstepd gives its node's name: "slurmstepd-n1: error: ".
  if (auto text = text_after(line, "slurmstepd"))
    if (auto error = text_after(*text, ": error: "); error && take_stepd(std::string(*error)))
      return;
  if (line.starts_with("srun: ") || line.starts_with("slurmstepd")) return;
  if (line.find_first_not_of(" \t\r") != std::string::npos) last_words_ = shortened(line);
}

bool RankFailure::take_srun(const std::string& text) {
  if (auto node = text_after(text, "Node failure on ")) {
    lost_node_ = *node;
    return true;
  }
  if (auto why = text_after(text, " failed on node "); why && text.starts_with("Task launch for")) {
    if (launch_.empty()) launch_ = shortened(*why);
    return true;
  }
  if (auto why = text_after(text, "Unable to create step for job ")) {
    const std::size_t at = why->find(": ");
    no_step_ = shortened(at == std::string::npos ? *why : why->substr(at + 2));
    return true;
  }
  if (auto task = parse_task_end(text)) {
    out_of_memory_ = out_of_memory_ || task->out_of_memory;
    if (ends_.size() < kMostEnds) ends_.push_back(std::move(*task));
    return true;
  }
  return false;
}

bool RankFailure::take_stepd(const std::string& text) {
  if (text.find("oom-kill event(s)") != std::string::npos) out_of_memory_ = true;
  if (auto why = text_after(text, "execve(): ")) exec_ = shortened(*why);
  if (auto why = text_after(text, "*** STEP "); why && step_.empty()) step_ = shortened(*why);
  return true;
}

void RankFailure::lost(std::uint32_t rank, const std::string& node) {
  // Ranks that srun takes down after the first one say nothing new. That one may not have been told
  // of: it can die before it joins, say goodbye first, or leave its agent a save to write.
  if (lost_ || !ends_.empty()) return;
  lost_ = rank;
  lost_on_ = node;
}

// Ranks that fail because another has gone may end before srun hears of that one.
std::string RankFailure::first_end() const {
  if (ends_.empty()) return "";
  const TaskEnd& first = ends_.front();
  for (const TaskEnd& end : ends_)
    if (lost_ && !first.has_task(*lost_) && end.has_task(*lost_))
      return fmt::format("rank {} on {} {}", *lost_, lost_on_, end.how);
  return fmt::format("{} {} on {} {}", first.several ? "ranks" : "rank", first.tasks, first.nodes,
                     first.how);
}

std::string RankFailure::cause(const ChildExit& exit) const {
  if (!lost_node_.empty()) return fmt::format("node {} was lost", lost_node_);
  if (!no_step_.empty()) return fmt::format("Slurm does not start the ranks: {}", no_step_);
  if (!launch_.empty()) return fmt::format("the ranks could not be started on {}", launch_);
  if (!exec_.empty()) return fmt::format("the program could not be executed: {}", exec_);
  std::string cause = first_end();
  if (cause.empty()) {
    cause = "the step of ranks " + exit.to_string();
    if (lost_) cause += fmt::format(", and rank {} on {} had gone first", *lost_, lost_on_);
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
