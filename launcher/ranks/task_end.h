// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bellows {

/// What srun says at once of tasks that ended badly: "n[1-2]: tasks 0-1: Exited with exit code 7".
struct TaskEnd {
  std::string nodes;
  std::string tasks;
  bool several = false;
  std::string how;  ///< for a person: "was killed by signal 9 (Killed)"
  bool out_of_memory = false;
  std::optional<std::uint64_t> status;  ///< that it exited with; nothing: it ended otherwise

  bool has_task(std::uint32_t task) const;
};

/// What srun says about a task that its slurmstepd could not start, as when that ends before it has
/// made one: "task 3 launch failed: Unspecified error".
struct LaunchFailure {
  std::uint32_t task = 0;
  std::string why;
};

/// From the text behind "srun: error: "; nothing when it is about something else.
std::optional<LaunchFailure> parse_launch_failure(std::string_view text);
/// The same.
std::optional<TaskEnd> parse_task_end(std::string_view text);

/// The text of a line that begins with `begin`; a view of the line.
std::optional<std::string_view> text_after(std::string_view line, std::string_view begin);
/// The text behind the first `part`, which may stand anywhere in the line.
std::optional<std::string_view> text_behind(std::string_view line, std::string_view part);

/// Whether a slurmstepd tells that a task was killed for memory: "Detected 1 oom-kill event(s)",
/// from 23.02 "Detected 1 oom_kill event".
bool tells_oom_kill(std::string_view error);

/// What a slurmstepd says went wrong. Its line begins with its name and node, as in
/// "slurmstepd-n1: error: ", or from 25.05 with the time alone, as in "[2026-11-26T12:19:36.674] ".
/// Of the latter only what RankFailure looks for, and what tells of a cancelled step.
std::optional<std::string_view> error_of_stepd(std::string_view line);

}  // namespace bellows
