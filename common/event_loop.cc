// SPDX-License-Identifier: Apache-2.0
#include "common/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace bellows {

EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  end();
  loop_ = std::exchange(other.loop_, nullptr);
  fd_ = other.fd_;
  key_ = other.key_;
  return *this;
}

void EventLoop::Watch::end() {
  if (!loop_) return;
  epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_DEL, fd_, nullptr);
  loop_->handlers_.erase(key_);
  loop_ = nullptr;
}

Result<std::unique_ptr<EventLoop>> EventLoop::make() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_error("make", "an epoll descriptor");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Result<EventLoop::Watch> EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = next_key_;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
    return errno_error("watch", "a descriptor");
  handlers_[next_key_] = std::make_shared<Handler>(std::move(handler));
  return Watch(this, fd, next_key_++);
}

void EventLoop::run_once(Clock::time_point until) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{60000};
  // Rounded up, so that what is to happen then is due.
  const auto left = std::chrono::ceil<milliseconds>(
      std::min<Clock::duration>(std::max(until - Clock::now(), Clock::duration(0)), kLongest));
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, static_cast<int>(left.count()));
  for (int i = 0; i < count; ++i) {
    const auto found = handlers_.find(events[i].data.u64);
    if (found == handlers_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second;
    (*handler)(events[i].events);
  }
}

}  // namespace bellows
