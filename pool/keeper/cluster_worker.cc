// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/cluster_worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kListEach{1000};
/// A refusal by the site's policy or a limit lasts; slurmctld's log is not to be filled with it.
constexpr std::chrono::seconds kAfterRefusal{5};

/// Whether the run is the one that Slurm has of its job now. busy: there is a later one.
Status is_own_run(const std::optional<SlurmJob>& job, const SlurmJob& run) {
  if (run.id == 0) return {};
  if (job && is_later_run(*job, run))
    return Error{ErrorKind::busy, fmt::format("Slurm has started job {} again elsewhere", run.id)};
  if (job && job->state == SlurmState::running) return {};
  return Error{ErrorKind::unavailable,
               fmt::format("Slurm says that the keeper's job {} does not run; the keeper waits "
                           "until it does, or ends",
                           run.id)};
}

}  // namespace

ClusterWorker::ClusterWorker(Cluster& cluster, KeeperSeat seat, SlurmJob run, Tell tell)
    : cluster_(cluster),
      seat_(std::move(seat)),
      run_(std::move(run)),
      tell_(std::move(tell)),
      thread_([this] { this->run(); }) {}

ClusterWorker::~ClusterWorker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  news_.notify_all();
  thread_.join();
}

void ClusterWorker::want(std::uint32_t submissions) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t left = submissions - (submits_ && submissions > 0 ? 1 : 0);
  if (left > wanted_) news_.notify_all();
  wanted_ = left;
}

bool ClusterWorker::is_submitting() const {
  const std::lock_guard lock(mutex_);
  return submits_;
}

void ClusterWorker::cancel(std::uint32_t job) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(job);
  news_.notify_all();
}

bool ClusterWorker::may_submit(Clock::time_point now) const {
  return wanted_ > 0 && now >= submit_at_ && now < acts_until_;
}

/// For something to do. False: the end.
bool ClusterWorker::wait() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto now = Clock::now();
    if (!cancels_.empty() || now >= list_at_ || may_submit(now)) return true;
    const bool submits_first = wanted_ > 0 && submit_at_ > now;
    news_.wait_until(lock, submits_first ? std::min(list_at_, submit_at_) : list_at_);
  }
  return false;
}

void ClusterWorker::cancel_all(ClusterNews& news) {
  std::unique_lock lock(mutex_);
  while (!cancels_.empty() && !ends_) {
    // Whoever wants that after the next list says so again.
    if (Clock::now() >= acts_until_) return cancels_.clear();
    const std::uint32_t job = std::exchange(cancels_.front(), 0);
    cancels_.pop_front();
    lock.unlock();
    const Status done = cluster_.cancel(job);
    if (!done) news.cancel_trouble = done.error().text;
    lock.lock();
  }
}

void ClusterWorker::submit_all(ClusterNews& news) {
  std::unique_lock lock(mutex_);
  // Never by what Slurm said long ago.
  for (auto now = Clock::now(); !ends_ && may_submit(now) && now < list_at_; now = Clock::now()) {
    --wanted_;
    submits_ = true;
    lock.unlock();
    const auto job = cluster_.submit();
    if (job) news.submitted.push_back(*job);
    if (!job) {
      news.submit_trouble = job.error().text;
      submit_at_ = Clock::now() + kAfterRefusal;
    }
    // Before it counts as not under way.
    if (job) tell_({.submitted = std::exchange(news.submitted, {}), .jobs = {}});
    lock.lock();
    submits_ = false;
  }
}

void ClusterWorker::list(ClusterNews& news) {
  news.asked = Clock::now();
  const Status held = seat_.look();
  auto jobs = held ? cluster_.jobs() : Result<PoolQueue>(held.error());
  const Status own = jobs ? is_own_run(jobs->keeper, run_) : jobs.error();
  if (own) {
    news.jobs = std::move(*jobs);
    acts_until_ = news.asked + kActsFor;
    return;
  }
  news.list_trouble = own.error().text;
  news.replaced = own.error().kind == ErrorKind::busy;
  if (news.replaced) acts_until_ = {};
}

void ClusterWorker::run() {
  while (wait()) {
    ClusterNews news;
    cancel_all(news);
    submit_all(news);
    if (Clock::now() >= list_at_) {
      list(news);
      list_at_ = Clock::now() + kListEach;
    }
    tell_(std::move(news));
  }
}

}  // namespace bellows::pool
