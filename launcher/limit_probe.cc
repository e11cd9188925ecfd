// SPDX-License-Identifier: Apache-2.0
#include "launcher/limit_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "common/text.h"

namespace bellows {
namespace {

std::string limits_line(SlurmClient& slurm, std::uint32_t id) {
  auto job = slurm.job(id);
  if (!job || job->state != SlurmState::running || job->end_time == 0) return "";
  JobLimits limits;
  limits.left = job->end_time - job->controller_now;
  limits.total = job->end_time - job->start_time;
  limits.preempted = job->preempt_time != 0;
  if (auto grace = slurm.grace_of(*job)) limits.grace = *grace;
  return limits.to_line();
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  const bool negative = text.starts_with('-');
  auto number = parse_uint(negative ? text.substr(1) : text);
  if (!number || *number > INT32_MAX) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(*number) : static_cast<std::int64_t>(*number);
}

}  // namespace

std::string JobLimits::to_line() const {
  return fmt::format("{} {} {:d} {:d} {}\n", left, total, preempted, grace.preempts, grace.preempt);
}

std::optional<JobLimits> JobLimits::from_line(const std::string& line) {
  if (!line.ends_with('\n')) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (std::string_view word : split(trim(line), ' ')) {
    auto number = parse_int(word);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.size() != 5 || numbers[4] < 0) return std::nullopt;
  return JobLimits{numbers[0],
                   numbers[1],
                   numbers[2] != 0,
                   {numbers[3] != 0, static_cast<std::uint32_t>(numbers[4])}};
}

void LimitProbe::ask(SlurmClient& slurm, std::uint32_t job) {
  if (asking()) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  Fd in(ends[0]);
  Fd out(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    _exit(write_all(out.get(), limits_line(slurm, job), "the launcher") ? 0 : 1);
  }
  pid_ = child;
  pipe_ = std::move(in);
  text_.clear();
}

std::optional<JobLimits> LimitProbe::take() {
  if (!asking()) return std::nullopt;
  char chunk[256];
  ssize_t got;
  while ((got = read(pipe_.get(), chunk, sizeof chunk)) > 0)
    text_.append(chunk, static_cast<std::size_t>(got));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  end();
  return JobLimits::from_line(text_);
}

void LimitProbe::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  pipe_.reset();
}

}  // namespace bellows
