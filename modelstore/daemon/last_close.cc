// SPDX-License-Identifier: Apache-2.0
#include "modelstore/daemon/last_close.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <system_error>
#include <utility>

namespace bellows {

Result<std::unique_ptr<LastClose>> LastClose::make(EventLoop& loop,
                                                   std::function<void(std::uint64_t)> closed) {
  std::unique_ptr<LastClose> made(new LastClose(std::move(closed)));
  made->event_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->event_) return errno_error("make", "an eventfd");
  auto watch = loop.watch(made->event_.get(), EPOLLIN,
                          [object = made.get()](std::uint32_t) { object->tell(); });
  if (!watch) return watch.error();
  made->watch_ = std::move(*watch);
  try {
    made->thread_ = std::thread([object = made.get()] { object->work(); });
  } catch (const std::system_error& error) {
    return Error{ErrorKind::unavailable, fmt::format("cannot start a thread: {}", error.what())};
  }
  return made;
}

LastClose::~LastClose() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LastClose::close(Fd fd, std::uint64_t number) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    to_close_.emplace_back(std::move(fd), number);
  }
  changed_.notify_one();
}

void LastClose::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !to_close_.empty(); });
    if (to_close_.empty()) return;
    auto [fd, number] = std::move(to_close_.front());
    to_close_.pop_front();
    lock.unlock();
    fd.reset();
    lock.lock();
    if (number != 0) done_.push_back(number);
    eventfd_write(event_.get(), 1);
  }
}

void LastClose::tell() {
  eventfd_t ignored = 0;
  (void)eventfd_read(event_.get(), &ignored);
  std::vector<std::uint64_t> done;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done.swap(done_);
  }
  for (const std::uint64_t number : done) closed_(number);
}

}  // namespace bellows
