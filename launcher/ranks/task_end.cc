// SPDX-License-Identifier: Apache-2.0
#include "launcher/ranks/task_end.h"

#include <fmt/core.h>

#include <cstring>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::string_view kExit = "Exited with exit code ";

// "Segmentation fault (core dumped)" as srun says it, which is strsignal's text.
std::string in_words(std::string_view what) {
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

}  // namespace

bool TaskEnd::has_task(std::uint32_t task) const {
  for (const std::string_view part : split(tasks, ',')) {
    const std::size_t dash = part.find('-');
    const auto first = parse_uint(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_uint(part.substr(dash + 1));
    if (first && last && *first <= task && task <= *last) return true;
  }
  return false;
}

std::optional<std::string_view> text_after(std::string_view line, std::string_view begin) {
  if (!line.starts_with(begin)) return std::nullopt;
  return line.substr(begin.size());
}

std::optional<std::string_view> text_behind(std::string_view line, std::string_view part) {
  const std::size_t at = line.find(part);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + part.size());
}

bool tells_oom_kill(std::string_view error) {
  if (!error.starts_with("Detected ")) return false;
  return text_behind(error, "oom-kill event") || text_behind(error, "oom_kill event");
}

std::optional<std::string_view> error_of_stepd(std::string_view line) {
  if (line.starts_with("slurmstepd")) return text_behind(line, ": error: ");
  if (!line.starts_with('[')) return std::nullopt;
  // No LogTimeFormat is longer. A rank's line may be.
  constexpr std::size_t kLongestTime = 80;
  constexpr std::string_view kError = "] error: ";
  const std::size_t end = line.substr(0, kLongestTime + kError.size()).find(kError);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view error = line.substr(end + kError.size());
  // Programs have such logs, too: only what is looked for.
  const bool known =
      error.starts_with("execve(): ") || error.starts_with("*** ") || tells_oom_kill(error);
  return known ? std::optional(error) : std::nullopt;
}

// task RANK launch failed: WHY.
std::optional<LaunchFailure> parse_launch_failure(std::string_view text) {
  const auto words = text_after(text, "task ");
  const auto why = text_behind(text, " launch failed: ");
  if (!words || !why) return std::nullopt;
  const auto task = parse_uint(words->substr(0, words->find(' ')));
  if (!task || *task > UINT32_MAX) return std::nullopt;
  return LaunchFailure{static_cast<std::uint32_t>(*task), std::string(*why)};
}

// HOSTS: task LIST: WHAT.
std::optional<TaskEnd> parse_task_end(std::string_view text) {
  for (std::string_view word : {": task ", ": tasks "}) {
    const std::size_t at = text.find(word);
    if (at == std::string_view::npos) continue;
    const std::size_t list = at + word.size();
    const std::size_t end = text.find(": ", list);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view what = text.substr(end + 2);
    const auto status = text_after(what, kExit);
    return TaskEnd{std::string(text.substr(0, at)),
                   std::string(text.substr(list, end - list)),
                   word == ": tasks ",
                   in_words(what),
                   what.starts_with("Out Of Memory"),
                   status ? parse_uint(*status) : std::nullopt};
  }
  return std::nullopt;
}

}  // namespace bellows
