// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/job_book.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace bellows {
namespace {

constexpr std::time_t kHour = 3600;
/// Reports a second that bellowsd wants of all launchers together, and the shortest pause.
constexpr double kReportsPerSecond = 200;
constexpr double kLeastPause = 1;

std::uint32_t size_of(const SlurmJob& job) {
  return job.state == SlurmState::pending ? job.requested_gpus() : job.gpus();
}

void learn(JobNotes& notes, const RunReport& report) {
  // Slurm knows what the job holds; a report may say anything.
  if (report.state != RunReport::State::running || report.gpus != notes.size) return;
  notes.speed.note_noise_scale(report.noise_scale);
  if (report.step_s > 0) notes.speed.add({report.nodes, report.gpus}, report.batch, report.step_s);
}

}  // namespace

void JobBook::update(const std::vector<SlurmJob>& elastic, std::time_t now) {
  const std::lock_guard lock(mutex_);
  std::set<std::uint32_t> known;
  for (const SlurmJob& job : elastic) {
    known.insert(job.id);
    // A bellowsd before this one may have caused every restart, and one that is under way.
    const auto [entry, fresh] = notes_.try_emplace(job.id);
    JobNotes& notes = entry->second;
    if (fresh)
      notes.moves.assign(job.restarts + (!updated_ && job.state == SlurmState::running), now);
    notes.uid = job.uid;
    if (notes.restarts != job.restarts) {
      notes.report.reset();
      notes.order.reset();
      notes.answer.reset();
    }
    notes.restarts = job.restarts;
    const std::uint32_t size = size_of(job);
    if (size != 0) {
      if (notes.size != 0 && size != notes.size && size != notes.given) notes.user_resized = now;
      notes.size = size;
    }
    while (!notes.moves.empty() && notes.moves.front() + kHour < now) notes.moves.pop_front();
  }
  updated_ = true;
  std::erase_if(notes_, [&known](const auto& entry) { return !known.contains(entry.first); });
}

Result<ReportReply> JobBook::take(const RunReport& report, uid_t uid, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(report.job);
  if (found == notes_.end())
    return Error{ErrorKind::not_found,
                 fmt::format("job {} is not one that bellowsd resizes", report.job)};
  JobNotes& notes = found->second;
  if (notes.uid != uid)
    return Error{ErrorKind::denied,
                 fmt::format("job {} belongs to another user than uid {}", report.job, uid)};
  ReportReply reply;
  reply.again_s = std::max(kLeastPause, static_cast<double>(notes_.size()) / kReportsPerSecond);
  // Slurm has not shown this run yet, or is past it.
  if (report.restarts != notes.restarts) return reply;
  learn(notes, report);
  if (report.answer && notes.order && report.answer->order == notes.order->id) {
    notes.answer = report.answer;
    notes.order.reset();
  }
  notes.report = report;
  notes.heard = now;
  reply.order = notes.order;
  return reply;
}

void JobBook::give_order(std::uint32_t job, const Order& order) {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(job);
  if (found == notes_.end()) return;
  found->second.order = order;
  // Its launcher may carry it out alone, which is no word of the job's user.
  found->second.given = order.gpus;
  found->second.answer.reset();
}

void JobBook::withdraw_order(std::uint32_t job) {
  const std::lock_guard lock(mutex_);
  if (const auto found = notes_.find(job); found != notes_.end()) found->second.order.reset();
}

std::optional<OrderAnswer> JobBook::answer_of(std::uint32_t job) const {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(job);
  return found == notes_.end() ? std::nullopt : found->second.answer;
}

void JobBook::note_given(std::uint32_t job, std::uint32_t gpus, bool restarted, std::time_t now) {
  const std::lock_guard lock(mutex_);
  JobNotes& notes = notes_[job];
  notes.given = gpus;
  if (restarted) notes.moves.push_back(now);
}

std::map<std::uint32_t, JobNotes> JobBook::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace bellows
