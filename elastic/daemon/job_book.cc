// SPDX-License-Identifier: Apache-2.0
#include "elastic/daemon/job_book.h"

#include <fmt/core.h>

#include <algorithm>

namespace bellows {
namespace {

constexpr std::time_t kHour = 3600;
/// Reports a second that bellowsd wants of all launchers together, and the shortest pause.
constexpr double kReportsPerSecond = 200;
constexpr double kLeastPause = 1;
/// Orders must reach all launchers of a plan within Transaction::Limits::together.
constexpr double kMostPause = 3;
/// A job with which a plan failed is left alone for so long, and twice as long each time.
constexpr std::chrono::seconds kFirstPause{30};
constexpr unsigned kMostFailures = 8;
/// Sizes that Slurm could not start are not tried again for so long.
constexpr std::chrono::seconds kStuck{3600};
/// How long a job is remembered that is not seen: between two runs Slurm may show it as one that
/// has ended.
constexpr std::time_t kRemembered = 60;

std::uint32_t size_of(const SlurmJob& job) {
  return job.state == SlurmState::pending ? job.requested_gpus() : job.gpus();
}

/// Nothing: it is alone.
std::optional<ClassKey> class_key_of(const SlurmJob& job, const NodeTypes& types) {
  const auto contract = Contract::parse(Contract::line_in(job.admin_comment));
  return contract ? class_key(job, *contract, gpu_type_of(job, types)) : std::nullopt;
}

/// An order may have moved the job though its plan was given up: that counts as well.
void begin_run(JobNotes& notes, std::time_t now) {
  if (notes.ordered && !notes.counted) notes.moves.push_back(now);
  if (notes.counted) notes.failures = 0;
  notes.ordered = notes.counted = notes.has_run = false;
  notes.report.reset();
  notes.order.reset();
  notes.answer.reset();
}

}  // namespace

void JobBook::update(const std::vector<SlurmJob>& elastic, std::time_t now,
                     const NodeTypes& types) {
  const std::lock_guard lock(mutex_);
  std::size_t reporting = 0;
  for (const SlurmJob& job : elastic) {
    // A bellowsd before this one may have caused every restart, and one that is under way.
    const auto [entry, fresh] = notes_.try_emplace(job.id);
    JobNotes& notes = entry->second;
    if (fresh)
      notes.moves.assign(job.restarts + (!updated_ && job.state == SlurmState::running), now);
    notes.uid = job.uid;
    notes.seen = now;
    notes.completed = false;
    const std::uint32_t held = job.state == SlurmState::running ? job.gpus() : 0;
    if (fresh) notes.service.begin(held, job.times.start, job.restarts == 0);
    notes.service.note(held, now);
    const bool new_run = notes.restarts != job.restarts;
    if (new_run) begin_run(notes, now);
    notes.restarts = job.restarts;
    const bool begins = job.state == SlurmState::running && !notes.has_run;
    notes.has_run |= begins;
    // Until it runs, neither its partition nor the type of its GPUs need be known.
    if (fresh || begins) notes.class_key = class_key_of(job, types);
    const std::uint32_t size = size_of(job);
    if (size != 0) {
      // A run that lost a node goes on with less, which is nobody's choice.
      const bool may_be_chosen = new_run || job.state == SlurmState::pending || size > notes.size;
      if (may_be_chosen && notes.size != 0 && size != notes.size && size != notes.given)
        notes.user_resized = now;
      notes.size = size;
    }
    reporting += notes.report.has_value();
    while (!notes.moves.empty() && notes.moves.front() + kHour < now) notes.moves.pop_front();
  }
  updated_ = true;
  now_ = now;
  reporting_ = reporting;
  forget_before(now);
}

void JobBook::note_completed(std::uint32_t job) {
  const std::lock_guard lock(mutex_);
  if (JobNotes* const notes = find(job)) notes->completed = true;
}

void JobBook::forget_before(std::time_t now) {
  std::erase_if(notes_, [&](const auto& entry) {
    const JobNotes& notes = entry.second;
    if (notes.seen + kRemembered >= now) return false;
    if (notes.completed && notes.class_key && notes.service.is_whole())
      classes_.at(*notes.class_key, now).note_finished(notes.service.gpu_seconds());
    return true;
  });
  classes_.forget_before(now);
}

Result<ReportReply> JobBook::take(const RunReport& report, uid_t uid, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  JobNotes* const known = find(report.job);
  if (!known)
    return Error{ErrorKind::not_found,
                 fmt::format("job {} is not one that bellowsd resizes", report.job)};
  JobNotes& notes = *known;
  if (notes.uid != uid)
    return Error{ErrorKind::denied,
                 fmt::format("job {} belongs to another user than uid {}", report.job, uid)};
  ReportReply reply;
  reply.again_s =
      std::clamp(static_cast<double>(reporting_) / kReportsPerSecond, kLeastPause, kMostPause);
  // Slurm has not shown this run yet, or is past it.
  if (report.restarts != notes.restarts) return reply;
  learn(notes, report);
  if (report.answer && notes.order && report.answer->order == notes.order->id) {
    notes.answer = report.answer;
    notes.order.reset();
  }
  if (!report.saving || !notes.report || !notes.report->saving) notes.saves_since = now;
  notes.report = report;
  notes.heard = now;
  reply.order = notes.order;
  return reply;
}

void JobBook::learn(JobNotes& notes, const RunReport& report) {
  // Slurm knows what the job holds; a report may say anything.
  if (report.state != RunReport::State::running || report.gpus != notes.size) return;
  const GpuLayout layout{report.nodes, report.gpus};
  notes.speed.note_noise_scale(report.noise_scale);
  if (report.step_s > 0) notes.speed.add(layout, report.batch, report.step_s);
  if (!notes.class_key || report.step_s <= 0) return;
  JobClass& of_class = classes_.at(*notes.class_key, now_);
  of_class.add(layout, report.batch, report.step_s);
  if (report.noise_scale > 0 && !notes.noise_told)
    of_class.note_first_noise({1, static_cast<double>(report.noise_scale)});
  notes.noise_told |= report.noise_scale > 0;
}

JobNotes* JobBook::find(std::uint32_t job) {
  const auto found = notes_.find(job);
  return found == notes_.end() ? nullptr : &found->second;
}

void JobBook::give_order(std::uint32_t job, const Order& order) {
  const std::lock_guard lock(mutex_);
  JobNotes* const notes = find(job);
  if (!notes) return;
  notes->order = order;
  // Its launcher may carry it out alone, which is no word of the job's user.
  notes->given = order.gpus;
  notes->ordered = true;
  notes->answer.reset();
}

void JobBook::withdraw_order(std::uint32_t job) {
  const std::lock_guard lock(mutex_);
  if (JobNotes* const notes = find(job)) notes->order.reset();
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
  if (!restarted) return;
  notes.moves.push_back(now);
  notes.counted = true;
}

void JobBook::note_failed(std::uint32_t job, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  JobNotes* const notes = find(job);
  if (!notes) return;
  notes->failures = std::min(notes->failures + 1, kMostFailures);
  notes->left_alone_until = now + kFirstPause * (1U << (notes->failures - 1));
}

void JobBook::note_stuck(std::uint32_t job, std::uint32_t gpus, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  JobNotes* const notes = find(job);
  if (!notes) return;
  notes->too_many = gpus;
  notes->too_many_until = now + kStuck;
}

std::shared_ptr<const JobClass> JobBook::copy_of(const ClassKey& key) const {
  const JobClass* known = classes_.find(key);
  if (!known) return nullptr;
  (void)known->steps.record().model();
  return std::make_shared<const JobClass>(*known);
}

std::map<std::uint32_t, JobNotes> JobBook::notes() const {
  const std::lock_guard lock(mutex_);
  // What is worked out here need not be in each copy.
  for (const auto& [id, notes] : notes_) notes.speed.prepare();
  auto copies = notes_;
  // Jobs of a class have one copy of it.
  std::map<ClassKey, std::shared_ptr<const JobClass>> classes;
  for (auto& [id, notes] : copies) {
    if (!notes.class_key) continue;
    const auto [known, fresh] = classes.try_emplace(*notes.class_key);
    if (fresh) known->second = copy_of(*notes.class_key);
    notes.of_class = known->second;
  }
  return copies;
}

}  // namespace bellows
