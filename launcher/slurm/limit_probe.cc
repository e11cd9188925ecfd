// SPDX-License-Identifier: Apache-2.0
#include "launcher/slurm/limit_probe.h"

#include <fmt/core.h>

#include <vector>

#include "common/text.h"

namespace bellows {
namespace {

std::optional<std::int64_t> parse_int(std::string_view text) {
  const bool negative = text.starts_with('-');
  auto number = parse_uint(negative ? text.substr(1) : text);
  if (!number || *number > INT32_MAX) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(*number) : static_cast<std::int64_t>(*number);
}

}  // namespace

std::string probe_limits(Slurm& slurm, std::uint32_t id) {
  auto job = slurm.job(id);
  if (!job || job->state != SlurmState::running || job->times.end == 0) return "";
  JobLimits limits;
  limits.left = job->times.end - job->times.now;
  limits.total = job->times.end - job->times.start;
  limits.preempted = job->times.preempt != 0;
  if (auto grace = slurm.grace_of(*job)) limits.grace = *grace;
  return limits.to_line();
}

std::string JobLimits::to_line() const {
  return fmt::format("{} {} {:d} {:d} {} {}\n", left, total, preempted, grace.preempts,
                     grace.preempt, grace.kill_wait);
}

std::optional<JobLimits> JobLimits::from_line(const std::string& line) {
  if (!line.ends_with('\n')) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (std::string_view word : split(trim(line), ' ')) {
    auto number = parse_int(word);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.size() != 6 || numbers[4] < 0 || numbers[5] < 0) return std::nullopt;
  return JobLimits{numbers[0],
                   numbers[1],
                   numbers[2] != 0,
                   {numbers[3] != 0, static_cast<std::uint32_t>(numbers[4]),
                    static_cast<std::uint32_t>(numbers[5])}};
}

}  // namespace bellows
