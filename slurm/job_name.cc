// SPDX-License-Identifier: Apache-2.0
#include "slurm/job_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"

namespace bellows {
namespace {

constexpr std::size_t kMostTasksNamed = 8;

}  // namespace

std::string JobName::to_string() const {
  return task ? fmt::format("{}_{}", id, *task) : std::to_string(id);
}

std::optional<JobName> parse_job_name(const std::string& text) {
  constexpr std::uint64_t kMost = 0x3ffffff;
  auto parts = split(text, '_');
  auto id = parse_uint(parts[0]);
  if (parts.size() > 2 || !id || *id == 0 || *id > kMost) return std::nullopt;
  JobName name{static_cast<std::uint32_t>(*id), std::nullopt};
  if (parts.size() == 1) return name;
  auto task = parse_uint(parts[1]);
  if (!task || *task > kMost) return std::nullopt;
  name.task = static_cast<std::uint32_t>(*task);
  return name;
}

Error names_an_array(const JobName& name, const std::vector<std::string>& tasks) {
  const std::size_t named = std::min(tasks.size(), kMostTasksNamed);
  std::string text = fmt::format("{} is a job array; name one of its tasks: {}", name.to_string(),
                                 fmt::join(tasks.begin(), tasks.begin() + named, ", "));
  if (named < tasks.size()) text += fmt::format(" and {} more", tasks.size() - named);
  return Error{ErrorKind::invalid, text};
}

}  // namespace bellows
