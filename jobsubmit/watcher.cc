// SPDX-License-Identifier: Apache-2.0
#include "jobsubmit/watcher.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <exception>

#include "common/fd.h"

namespace bellows {
namespace {

constexpr std::size_t kMostBytes = 1 << 20;

/// Differs whenever the file may have other content; also tells missing from unreadable.
std::string identity(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0) return fmt::format("errno {}", errno);
  return fmt::format("{} {} {} {}.{} {}.{} {:o}", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec,
                     s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec, s.st_mode);
}

}  // namespace

PolicyWatcher::PolicyWatcher(std::string path, std::chrono::milliseconds period, Report report)
    : path_(std::move(path)), period_(period), report_(std::move(report)) {
  look();
  // Signals belong to the host process: its own threads wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PolicyWatcher::~PolicyWatcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

PolicyWatcher::State PolicyWatcher::current() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void PolicyWatcher::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period_, [this] { return stop_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void PolicyWatcher::look() {
  try {
    std::string now = identity(path_);
    if (now == seen_) return;
    seen_ = std::move(now);
    read();
  } catch (const std::exception&) {
    // Out of memory. The old policy stays, and the next look tries again.
    seen_.clear();
  }
}

void PolicyWatcher::read() {
  auto text = read_file(path_, kMostBytes);
  Result<Policy> policy = text ? load_policy(*text, path_) : Result<Policy>(text.error());
  const std::string problem = policy ? "" : policy.error().text;
  {
    const std::lock_guard lock(mutex_);
    if (policy) state_.policy = std::make_shared<const Policy>(*std::move(policy));
    state_.problem = problem;
  }
  report_(path_, problem);
}

}  // namespace bellows
