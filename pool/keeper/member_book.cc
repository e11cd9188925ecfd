// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/member_book.h"

#include <algorithm>
#include <utility>

namespace bellows::pool {

namespace {

/// Clocks of nodes may differ from slurmctld's, and a list is a second old.
constexpr double kClocksDiffer_s = 10;

/// Seconds from submission to readiness, which is now. Nothing: they are not known.
std::optional<double> start_time(const MemberEntry& member, Clock::time_point now) {
  if (!member.adopted) return std::chrono::duration<double>(now - member.submitted).count();
  if (!member.report || member.report->ready_ms == 0 || member.slurm_submit == 0)
    return std::nullopt;
  const double took = static_cast<double>(member.report->ready_ms) / 1000 -
                      static_cast<double>(member.slurm_submit);
  const auto most = static_cast<double>(member.slurm_now - member.slurm_submit) + kClocksDiffer_s;
  // It says so itself.
  if (took > most) return std::nullopt;
  return std::max(0.0, took);
}

}  // namespace

void MemberBook::enter(MemberEntry& member, Phase phase, Clock::time_point now) {
  if (member.phase == phase) return;
  member.phase = phase;
  member.phase_since = now;
  ++version_;
  if (phase == Phase::ended && !member.ready_at && !member.cancelled) pause_after_fruitless(now);
  if (phase == Phase::ready) member.unasked = false;
  if (phase != Phase::ready || member.ready_at) return;
  member.ready_at = now;
  fruitless_ = 0;
  may_submit_at_ = {};
  if (const auto took = start_time(member, now)) start_times_.push_back(*took);
}

/// A script that fails at once must not have slurmctld run it again and again.
void MemberBook::pause_after_fruitless(Clock::time_point now) {
  if (++fruitless_ < kFruitless) return;
  const auto doubled = std::chrono::seconds(1) * (1U << std::min(fruitless_ - kFruitless, 10U));
  may_submit_at_ = now + std::min<std::chrono::seconds>(doubled, kLongestPause);
}

void MemberBook::submitted(std::uint32_t job, Clock::time_point now) {
  const auto [place, is_new] = members_.try_emplace(job);
  // A list may have been faster than sbatch.
  if (!is_new) return;
  place->second.job = job;
  place->second.submitted = place->second.phase_since = now;
  ++version_;
}

bool MemberBook::reported(const MemberReport& report, Clock::time_point now) {
  const auto place = members_.find(report.job);
  if (place == members_.end() || place->second.phase == Phase::ended) return false;
  MemberEntry& member = place->second;
  // A job that was requeued has a new agent, and the old one's last words may come after it.
  if (member.report && report.incarnation < member.report->incarnation) return false;
  if (member.report && (member.report->address != report.address ||
                        member.report->incarnation != report.incarnation))
    ++version_;
  member.report = report;
  member.reported = now;
  member.attended = true;
  if (report.draining)
    enter(member, Phase::draining, now);
  else if (member.phase != Phase::draining)
    enter(member, report.ready ? Phase::ready : Phase::starting, now);
  return true;
}

void MemberBook::left(std::uint32_t job, std::uint64_t incarnation) {
  const auto place = members_.find(job);
  if (place == members_.end() || !place->second.report) return;
  if (place->second.report->incarnation == incarnation) place->second.attended = false;
}

void MemberBook::take_job(const SlurmJob& job, Clock::time_point now) {
  const bool is_new = !members_.contains(job.id);
  // Under a keeper before this one, or of a pool before this one: whether it failed is not known.
  if (is_new && job.finished()) return;
  submitted(job.id, now);
  MemberEntry& member = members_.at(job.id);
  member.adopted |= is_new;
  // Slurm was late with what the keeper before this one asked for, and that has been made up for.
  member.unasked |= is_new && is_listed_;
  member.listed = true;
  member.reason = job.reason;
  member.slurm_submit = job.times.submit;
  member.slurm_now = job.times.now;
  if (job.finished()) {
    enter(member, Phase::ended, now);
    return;
  }
  // An administrator may have requeued it.
  if (member.phase == Phase::ended) {
    member.report.reset();
    enter(member, Phase::pending, now);
  }
  if (job.state == SlurmState::pending && member.phase != Phase::pending) {
    // Slurm has put it back into its queue.
    member.report.reset();
    member.attended = false;
    if (member.phase != Phase::draining) enter(member, Phase::pending, now);
  } else if (job.state == SlurmState::running && member.phase == Phase::pending) {
    enter(member, Phase::starting, now);
  }
}

void MemberBook::listed(const std::vector<SlurmJob>& jobs, Clock::time_point now) {
  for (const SlurmJob& job : jobs) take_job(job, now);
  is_listed_ = true;
  end_unlisted(jobs, now);
}

/// Slurm forgets a job some minutes after its end; one that has just been submitted is not on a
/// list that was asked for before.
void MemberBook::end_unlisted(const std::vector<SlurmJob>& jobs, Clock::time_point now) {
  for (auto place = members_.begin(); place != members_.end();) {
    MemberEntry& member = place->second;
    const bool is_there = std::any_of(jobs.begin(), jobs.end(),
                                      [&](const SlurmJob& job) { return job.id == member.job; });
    const bool is_gone = !is_there && (member.listed || now - member.submitted > kUnlisted);
    if (is_gone && member.phase == Phase::ended) {
      place = members_.erase(place);
      continue;
    }
    if (is_gone) enter(member, Phase::ended, now);
    ++place;
  }
}

void MemberBook::tick(Clock::time_point now, Clock::time_point hears_since) {
  for (auto& [job, member] : members_) {
    if (member.attended || !member.report) continue;
    const auto silent = now - member.reported;
    if (member.phase == Phase::ready && silent > kAway) enter(member, Phase::starting, now);
    // Its job runs, and nobody answers for it: there is nobody to be told to drain either.
    const bool is_lost = silent > kLost && now - hears_since > kLost;
    if (member.phase == Phase::starting && member.ready_at && is_lost) drain(job, now, now);
  }
}

void MemberBook::drain(std::uint32_t job, Clock::time_point by, Clock::time_point now) {
  const auto place = members_.find(job);
  if (place == members_.end() || place->second.phase == Phase::ended) return;
  if (!place->second.drain_by) place->second.drain_by = by;
  enter(place->second, Phase::draining, now);
}

void MemberBook::cancelled(std::uint32_t job, Clock::time_point now) {
  const auto place = members_.find(job);
  if (place != members_.end()) place->second.cancelled = now;
}

std::uint32_t MemberBook::count(Phase phase) const {
  return static_cast<std::uint32_t>(
      std::count_if(members_.begin(), members_.end(),
                    [phase](const auto& entry) { return entry.second.phase == phase; }));
}

std::uint32_t MemberBook::staying() const {
  return count(Phase::pending) + count(Phase::starting) + count(Phase::ready);
}

std::vector<double> MemberBook::take_start_times() { return std::exchange(start_times_, {}); }

}  // namespace bellows::pool
