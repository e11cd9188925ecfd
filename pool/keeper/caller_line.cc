// SPDX-License-Identifier: Apache-2.0
#include "pool/keeper/caller_line.h"

#include <utility>

namespace bellows::pool {

void CallerLine::publish(std::shared_ptr<const Members> members) {
  const std::lock_guard lock(mutex_);
  next_ = std::move(members);
  write_next();
}

/// gRPC takes one message at a time, and reads it until it is done.
void CallerLine::write_next() {
  if (writes_ || finished_ || !next_) return;
  sent_ = std::exchange(next_, nullptr);
  writes_ = true;
  StartWrite(sent_.get());
}

void CallerLine::finish_locked() {
  if (!std::exchange(finished_, true)) Finish(grpc::Status::OK);
}

void CallerLine::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writes_ = false;
  if (!ok) return finish_locked();
  write_next();
}

void CallerLine::OnCancel() {
  const std::lock_guard lock(mutex_);
  finish_locked();
}

}  // namespace bellows::pool
