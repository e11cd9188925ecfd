// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace bellows {

Result<std::unique_ptr<Completions>> Completions::make() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return errno_error("make", "an event descriptor");
  return std::make_unique<Completions>(std::move(event));
}

void Completions::add(std::function<void()> done) {
  {
    std::lock_guard lock(mutex_);
    ready_.push_back(std::move(done));
  }
  eventfd_write(event_.get(), 1);
}

void Completions::run() {
  eventfd_t ignored;
  eventfd_read(event_.get(), &ignored);
  std::vector<std::function<void()>> ready;
  {
    std::lock_guard lock(mutex_);
    ready.swap(ready_);
  }
  for (auto& done : ready) done();
}

Workers::Workers(std::size_t threads, Completions& completions) : completions_(completions) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::post(Job job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Workers::work() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (ending_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    completions_.add(job());
  }
}

}  // namespace bellows
