// SPDX-License-Identifier: Apache-2.0
#include "paramserver/server/fence_queue.h"

#include <sys/eventfd.h>

#include <utility>

namespace bellows::ps {

Status FenceQueue::open() {
  bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell_) return errno_error("make", "an eventfd");
  return {};
}

void FenceQueue::add(const Identity& who, const std::string& why) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({who, why});
  eventfd_write(bell_.get(), 1);
}

std::vector<FenceQueue::Entry> FenceQueue::take() {
  eventfd_t count = 0;
  (void)eventfd_read(bell_.get(), &count);
  const std::lock_guard lock(mutex_);
  return std::exchange(entries_, {});
}

}  // namespace bellows::ps
