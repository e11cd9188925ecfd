// SPDX-License-Identifier: Apache-2.0
#include "launcher/job_view.h"

#include <fmt/core.h>
#include <pwd.h>

#include <array>

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
  if (!job.admin_comment.starts_with("bellows/")) return std::optional<Contract>();
  auto contract = Contract::parse(job.admin_comment);
  if (!contract) return contract.error();
  return std::optional<Contract>(std::move(*contract));
}

Result<std::string> checkpoint_dir_of(const SlurmJob& job,
                                      const std::optional<Contract>& contract) {
  if (contract && !contract->checkpoint_dir.empty())
    return expand_path(contract->checkpoint_dir, user_name(job.uid), job.account,
                       std::to_string(job.id));
  return fmt::format("{}/bellows-{}", job.work_dir, job.id);
}

std::string JobView::state() const {
  const JobEvent* last = last_event();
  switch (job.state) {
    case SlurmState::pending:
      if (job.priority == 0) return "HALTED";
      return last && last->event == "RESIZING" ? "RESIZING" : "QUEUED";
    case SlurmState::running:
      // Events of an earlier run say nothing about this one.
      if (last && last->restart == job.restarts) return last->event;
      return contract ? "DEPLOYING" : "PROCESSING";
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

std::optional<std::uint64_t> JobView::step() const {
  for (auto event = events.rbegin(); event != events.rend(); ++event)
    if (event->step) return event->step;
  return std::nullopt;
}

}  // namespace bellows
