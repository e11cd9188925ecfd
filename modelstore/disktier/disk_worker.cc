// SPDX-License-Identifier: Apache-2.0
#include "modelstore/disktier/disk_worker.h"

#include <fmt/core.h>
#include <sys/eventfd.h>

#include <system_error>

namespace bellows {

Result<std::unique_ptr<DiskWorker>> DiskWorker::make() {
  std::unique_ptr<DiskWorker> made(new DiskWorker);
  made->event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->event_) return errno_error("make", "an eventfd");
  try {
    made->thread_ = std::thread([object = made.get()] { object->work(); });
  } catch (const std::system_error& error) {
    return Error{ErrorKind::unavailable, fmt::format("cannot start a thread: {}", error.what())};
  }
  return made;
}

DiskWorker::~DiskWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DiskWorker::add(Work work, Done done) {
  ++running_;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_do_.emplace_back(std::move(work), std::move(done));
  }
  changed_.notify_one();
}

void DiskWorker::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !to_do_.empty(); });
    if (ends_) return;
    auto [task, done] = std::move(to_do_.front());
    to_do_.pop_front();
    lock.unlock();
    Status status = task();
    // What it held goes here, not in the caller's thread: unmapping a model takes long.
    task = nullptr;
    lock.lock();
    done_.emplace_back(std::move(done), std::move(status));
    eventfd_write(event_.get(), 1);
  }
}

void DiskWorker::tell() {
  eventfd_t ignored = 0;
  (void)eventfd_read(event_.get(), &ignored);
  std::vector<std::pair<Done, Status>> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done.swap(done_);
  }
  for (const auto& [call, status] : done) {
    --running_;
    call(status);
  }
}

}  // namespace bellows
