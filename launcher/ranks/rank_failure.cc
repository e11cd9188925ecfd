// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/rank_failure.h"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace bellows {
namespace {

constexpr std::size_t kMostWords = 200;
/// Lines of srun; it groups tasks that ended alike.
constexpr std::size_t kMostEnds = 64;
/// What a shell says about a command that it does not find.
constexpr int kNotFound = 127;

/// Python's last words of a module that is not there or that it cannot read.
bool is_unimportable(std::string_view words) {
  for (const char* error : {"ImportError: ", "ModuleNotFoundError: ", "SyntaxError: ",
                            "IndentationError: ", "TabError: "})
    if (words.starts_with(error)) return true;
  return false;
}

std::string shortened(std::string_view text) { return std::string(text.substr(0, kMostWords)); }

}  // namespace

void RankFailure::take_line(const std::string& line) {
  if (auto text = text_after(line, "srun: error: ")) take_srun(*text);
  if (auto error = error_of_stepd(line)) take_stepd(*error);
}

void RankFailure::take_words(const std::string& line) {
  if (line.find_first_not_of(" \t\r") == std::string::npos) return;
  // The same of other ranks, which srun may end in the middle of it.
  const bool of_traceback = line.starts_with(' ') || line.starts_with("Traceback ");
  if (of_traceback && is_unimportable(last_words_)) return;
  last_words_ = shortened(line);
}

void RankFailure::take_srun(std::string_view text) {
  if (auto node = text_after(text, "Node failure on ")) {
    lost_node_ = *node;
  } else if (text.starts_with("Task launch for")) {
    if (auto why = text_behind(text, " failed on node "); why && launch_.empty())
      launch_ = shortened(*why);
  } else if (auto failure = parse_launch_failure(text)) {
    take_launch(*failure);
  } else if (text.starts_with("timeout waiting for task launch")) {
    no_launch_wait_ = shortened(text);
  } else if (text.starts_with("Timed out waiting for job step to complete")) {
    no_end_ = true;
  } else if (auto step = text_after(text, "Unable to create step for job ")) {
    no_step_ = shortened(text_behind(*step, ": ").value_or(*step));
  } else if (auto why = text_after(text, "Application launch failed: ")) {
    if (no_step_.empty() && launch_.empty()) no_step_ = shortened(*why);
  } else if (text.starts_with("Unable to confirm allocation for job ")) {
    no_step_ = shortened(text_behind(text, ": ").value_or(text));
  } else if (auto task = parse_task_end(text)) {
    out_of_memory_ = out_of_memory_ || task->out_of_memory;
    if (ends_.size() < kMostEnds) ends_.push_back(std::move(*task));
  }
}

void RankFailure::take_launch(const LaunchFailure& failure) {
  std::string node = "its node";
  for (const auto& [name, here] : ranks_)
    if (std::find(here.begin(), here.end(), failure.task) != here.end()) node = name;
  unlaunched_.add(failure.task, node);
  if (no_launch_.empty()) no_launch_ = shortened(failure.why);
}

void RankFailure::take_stepd(std::string_view text) {
  if (tells_oom_kill(text)) out_of_memory_ = true;
  if (auto why = text_after(text, "execve(): ")) exec_ = shortened(*why);
}

void RankFailure::node_lost(const std::string& node) {
  if (lost_node_.empty()) lost_node_ = node;
}

void RankFailure::lost(std::uint32_t rank, const std::string& node) {
  // Ranks that srun takes down after the first one say nothing new. That one may not have been told
  // of: it can die before it joins, say goodbye first, or leave its agent a save to write.
  if (lost_ || !ends_.empty()) return;
  lost_ = rank;
  lost_on_ = node;
}

// Ranks that fail because another rank ended may themselves end before srun is told about it.
std::string RankFailure::first_end() const {
  if (ends_.empty()) return "";
  const TaskEnd& first = ends_.front();
  for (const TaskEnd& end : ends_)
    if (lost_ && !first.has_task(*lost_) && end.has_task(*lost_))
      return fmt::format("rank {} on {} {}", *lost_, lost_on_, end.how);
  return fmt::format("{} {} on {} {}", first.several ? "ranks" : "rank", first.tasks, first.nodes,
                     first.how);
}

std::string RankFailure::no_start() const {
  if (!launch_.empty()) return fmt::format("the ranks could not be started on {}", launch_);
  if (unlaunched_.empty())
    return no_launch_wait_.empty() ? "" : "srun stopped waiting: " + no_launch_wait_;
  return fmt::format("{} could not be started: {}; the log of slurmd there says more",
                     unlaunched_.to_string(), no_launch_);
}

ChildExit RankFailure::true_exit(const ChildExit& exit) const {
  const bool all_known = lost_node_.empty() && !no_end_ && no_start().empty();
  return all_known || !exit.ok() ? exit : ChildExit{W_EXITCODE(1, 0)};
}

std::string RankFailure::cause(const ChildExit& exit) const {
  if (!lost_node_.empty()) return fmt::format("node {} was lost", lost_node_);
  if (!no_step_.empty()) return fmt::format("Slurm does not start the ranks: {}", no_step_);
  if (std::string why = no_start(); !why.empty()) return why;
  if (!exec_.empty()) return fmt::format("the program could not be executed: {}", exec_);
  std::string cause = first_end();
  if (cause.empty() && no_end_) return "srun stopped waiting for the ranks' step to end";
  if (cause.empty()) {
    cause = "the step of ranks " + exit.to_string();
    if (lost_) cause += fmt::format(", and rank {} on {} had ended first", *lost_, lost_on_);
  }
  if (out_of_memory_ && cause.find("memory limit") == std::string::npos)
    cause += ", out of memory: the job's memory limit was reached";
  return cause;
}

RankFailure::Culprit RankFailure::culprit(const ChildExit& exit) const {
  if (!lost_node_.empty() || !no_step_.empty() || !no_start().empty()) return Culprit::cluster;
  if (!exec_.empty() || exit.code() == kNotFound) return Culprit::missing;
  // srun's own status is that of a signal if it ended other ranks.
  const bool failed = exit.code() == 1 || (!ends_.empty() && ends_.front().status == 1);
  if (failed && is_unimportable(last_words_)) return Culprit::missing;
  return no_end_ && ends_.empty() ? Culprit::cluster : Culprit::program;
}

}  // namespace bellows
