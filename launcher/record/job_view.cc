// SPDX-License-Identifier: Apache-2.0
#include "launcher/record/job_view.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>

#include <algorithm>
#include <array>

#include "common/child.h"
#include "launcher/base/time_text.h"
#include "launcher/record/history.h"
#include "launcher/record/lost_halt.h"

namespace bellows {

std::string user_name(uid_t uid) {
  std::array<char, 16384> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found)
    return found->pw_name;
  return std::to_string(uid);
}

Result<std::optional<Contract>> contract_of(const SlurmJob& job) {
  const auto line = Contract::line_in(job.admin_comment);
  if (line.empty()) return std::optional<Contract>();
  auto contract = Contract::parse(line);
  if (!contract) return contract.error();
  return std::optional<Contract>(std::move(*contract));
}

Result<std::string> checkpoint_dir_of(const SlurmJob& job,
                                      const std::optional<Contract>& contract) {
  if (contract && !contract->checkpoint_dir.empty())
    return expand_path(contract->checkpoint_dir, user_name(job.uid), job.account,
                       std::to_string(job.id));
  return fmt::format("{}/bellows-{}", job.asked.work_dir, job.id);
}

namespace {

constexpr std::time_t kDay = 24 * 60 * 60;
/// Slurm's figure where nothing that runs has a time limit is a year.
constexpr std::time_t kNoPlan = 364 * kDay;

/// Of a job that was halted before this run began.
bool is_of_wait(const JobEvent& event) { return event.note == EventNote::halted_in_queue; }

/// "14:05:30", or with its day when that is not the day of `now`.
std::string moment(double time, std::time_t now) {
  const auto when = fmt::localtime(static_cast<std::time_t>(time));
  const auto today = fmt::localtime(now);
  if (when.tm_yday == today.tm_yday && when.tm_year == today.tm_year)
    return fmt::format("{:%H:%M:%S}", when);
  return fmt::format("{:%F %H:%M}", when);
}

std::string time_until(std::time_t then, std::time_t now) {
  const std::time_t left = then - now;
  if (left < 100) return fmt::format("{} s", left);
  return left < 2 * kDay ? duration_text(static_cast<double>(left))
                         : fmt::format("{} days", (left + kDay / 2) / kDay);
}

}  // namespace

bool JobView::may_be_loading() const {
  if (!contract || contract->extra_value(Contract::kModelsKey).empty() || job.nodes.empty())
    return false;
  const std::string state = state_without_models();
  const bool begins = state == "DEPLOYING" || state == "RUNNING" || state == "PROCESSING";
  if (job.state != SlurmState::running || job.configuring || !begins) return false;
  return std::none_of(events.begin(), events.end(), [this](const JobEvent& event) {
    return event.restart == job.restarts && event.note == EventNote::committed;
  });
}

std::string JobView::state() const {
  return !loading.empty() && may_be_loading() ? "DOWNLOADING" : state_without_models();
}

std::string JobView::state_without_models() const {
  const JobEvent* last = last_event();
  switch (job.state) {
    case SlurmState::pending:
      if (job.priority == 0) return "HALTED";
      return last && last->event == "RESIZING" ? "RESIZING" : "QUEUED";
    case SlurmState::running:
      if (job.configuring) return "DEPLOYING";
      // Events of an earlier run say nothing about this one.
      if (!last || last->restart != job.restarts) return "RUNNING";
      if (is_submission(*last)) return "DEPLOYING";
      return is_of_wait(*last) ? "RUNNING" : last->event;
    case SlurmState::suspended:
      return "HALTED";
    case SlurmState::completed:
      return "COMPLETED";
    case SlurmState::cancelled:
      return "CANCELLED";
    default:
      return "FAILED";
  }
}

std::string JobView::wait() const {
  const std::string reason = job.reason.empty() ? "None" : job.reason;
  const std::time_t now = job.times.now;
  std::string text = (job.priority == 0 ? "held: " : "waits: ") + reason;
  if (job.priority > 0 && job.times.begin > now)
    text = fmt::format("waits at least {}: {}", time_until(job.times.begin, now), reason);
  else if (job.priority > 0 && job.times.start > now && job.times.start < now + kNoPlan)
    text += fmt::format(", start planned in {}", time_until(job.times.start, now));
  // Why it waits again.
  const JobEvent* last = last_event();
  const bool told = last && !last->cause.empty() && (closes_run(*last) || is_of_wait(*last));
  return told ? fmt::format("{}; previously: {}", text, last->cause) : text;
}

std::string JobView::end() const {
  SlurmRun run;
  run.state = slurm_state_name(job.state);
  std::string cause = ending_of(run).cause;
  const ChildExit exit{static_cast<int>(job.exit_status)};
  if (job.state == SlurmState::failed) {
    cause = "the script " + exit.to_string();
    if (!job.output.empty()) cause += "; its output is in " + job.output;
  }
  return fmt::format(
      "{} {}", moment(static_cast<double>(job.times.end), static_cast<std::time_t>(wall_clock())),
      cause);
}

std::string JobView::last_words() const {
  const JobEvent* last = last_event();
  if (job.state == SlurmState::pending) return wait();
  if (job.state == SlurmState::suspended) return "suspended";
  if (state() == "DOWNLOADING") {
    std::vector<std::string> parts;
    for (const NodeModels& node : loading)
      parts.push_back(
          fmt::format("{} on {}", progress_text(node.read_bytes, node.bytes), node.node));
    return fmt::format("its models are being loaded: {}", fmt::join(parts, ", "));
  }
  // That of an older run may say the same by chance.
  const bool of_this_run = last && last->restart == job.restarts;
  const bool begins = !job.finished() && of_this_run && is_submission(*last);
  if (begins || (of_this_run && last->event == state()))
    return fmt::format("{} {}", moment(last->time, static_cast<std::time_t>(wall_clock())),
                       last->cause);
  if (job.finished()) return end();
  if (job.configuring) return "its nodes are being prepared";
  return contract ? "no 'bellows run' has started in it" : "not a Bellows job";
}

std::optional<std::uint64_t> JobView::step() const {
  for (auto event = events.rbegin(); event != events.rend(); ++event)
    if (event->step) return event->step;
  return std::nullopt;
}

}  // namespace bellows
