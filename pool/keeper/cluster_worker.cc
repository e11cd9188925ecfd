// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/cluster_worker.h"

#include <algorithm>
#include <utility>

namespace bellows::pool {
namespace {

constexpr std::chrono::milliseconds kListEach{1000};
/// A refusal by the site's policy or a limit lasts; slurmctld's log is not to be filled with it.
constexpr std::chrono::seconds kAfterRefusal{5};

}  // namespace

ClusterWorker::ClusterWorker(Cluster& cluster, Tell tell)
    : cluster_(cluster), tell_(std::move(tell)), thread_([this] { run(); }) {}

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

void ClusterWorker::cancel(std::uint32_t job) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(job);
  news_.notify_all();
}

/// For something to do. False: the end.
bool ClusterWorker::wait() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const auto now = Clock::now();
    if (!cancels_.empty() || now >= list_at_ || (wanted_ > 0 && now >= submit_at_)) return true;
    news_.wait_until(lock, wanted_ > 0 ? std::min(list_at_, submit_at_) : list_at_);
  }
  return false;
}

void ClusterWorker::cancel_all(ClusterNews& news) {
  std::unique_lock lock(mutex_);
  while (!cancels_.empty() && !ends_) {
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
  for (auto now = Clock::now(); wanted_ > 0 && !ends_ && now >= submit_at_ && now < list_at_;
       now = Clock::now()) {
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

void ClusterWorker::run() {
  while (wait()) {
    ClusterNews news;
    cancel_all(news);
    submit_all(news);
    if (Clock::now() >= list_at_) {
      auto jobs = cluster_.members();
      if (jobs) news.jobs = std::move(*jobs);
      if (!jobs) news.list_trouble = jobs.error().text;
      list_at_ = Clock::now() + kListEach;
    }
    tell_(std::move(news));
  }
}

}  // namespace bellows::pool
