// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/system/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <new>
#include <string>
#include <utility>

#include "checkpoint/system/memory_reserve.h"

namespace bellows {
namespace {

Status error_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return no_memory();
  } catch (const std::exception& e) {
    return Error{ErrorKind::internal, std::string("the checkpoint agent failed: ") + e.what()};
  }
}

}  // namespace

Error no_memory() {
  return Error{ErrorKind::unavailable,
               "the checkpoint agent is out of memory; ask for more memory, or run fewer ranks on "
               "the node"};
}

Result<std::unique_ptr<Completions>> Completions::make() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return errno_error("make", "an event descriptor");
  return std::make_unique<Completions>(std::move(event));
}

void Completions::add(std::list<Task> tasks) {
  {
    std::lock_guard lock(mutex_);
    ready_.splice(ready_.end(), tasks);
  }
  eventfd_write(event_.get(), 1);
}

void Completions::run() {
  eventfd_t ignored;
  eventfd_read(event_.get(), &ignored);
  std::list<Task> ready;
  {
    std::lock_guard lock(mutex_);
    ready.swap(ready_);
  }
  for (const Task& task : ready) task.finish(task.thrown ? error_of(task.thrown) : Status());
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

void Workers::post(Task task) {
  std::list<Task> one;
  one.push_back(std::move(task));
  {
    std::lock_guard lock(mutex_);
    tasks_.splice(tasks_.end(), one);
  }
  changed_.notify_one();
}

void Workers::work() {
  MemoryReserve reserve;
  while (true) {
    std::list<Task> one;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (ending_) return;
      one.splice(one.end(), tasks_, tasks_.begin());
    }
    Task& task = one.front();
    reserve.refill();
    try {
      if (!reserve.full()) throw std::bad_alloc();
      task.work();
    } catch (...) {
      task.thrown = std::current_exception();
    }
    // What it holds may be gigabytes, which take a while to free.
    task.work = nullptr;
    completions_.add(std::move(one));
  }
}

}  // namespace bellows
