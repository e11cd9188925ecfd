// SPDX-License-Identifier: Apache-2.0
#include "paramserver/client/device_copies.h"

namespace bellows::ps {

bool DeviceCopies::make(const CudaDriver& driver, std::size_t tensors) {
  if (!entries_.make(tensors)) return false;
  driver_ = &driver;
  tensors_ = tensors;
  return true;
}

DeviceCopies::~DeviceCopies() {
  for (std::size_t i = 0; i < tensors_; ++i) {
    Entry& entry = entries_[i];
    if (!entry.event) continue;
    const CudaContext current(*driver_, entry.context);
    (void)wait_for(entry);
    (void)driver_->end_event(entry.event);
  }
}

int DeviceCopies::wait_for(Entry& entry) {
  const int code = entry.pending ? driver_->await_event(entry.event) : 0;
  if (code == 0) entry.pending = false;
  return code;
}

DeviceError DeviceCopies::prepare(std::size_t tensor, void* context, void* stream) {
  Entry& entry = entries_[tensor];
  // An event can be recorded in streams of its own context only.
  if (entry.event && entry.context != context) {
    if (const int code = wait_for(entry)) return {code, "complete a copy"};
    (void)driver_->end_event(entry.event);
    entry.event = nullptr;
  }
  if (!entry.event) {
    if (const int code = driver_->make_event(&entry.event, CudaDriver::kEventWithoutTime)) {
      entry.event = nullptr;
      return {code, "make an event"};
    }
    entry.context = context;
  }
  if (!entry.pending) return {};
  const int code = driver_->stream_awaits_event(stream, entry.event, 0);
  return {code, "have a stream wait for a copy"};
}

DeviceError DeviceCopies::follow(std::size_t tensor, void* stream) {
  Entry& entry = entries_[tensor];
  const int code = driver_->record_event(entry.event, stream);
  if (code == 0)
    entry.pending = true;
  else
    // Nothing else would tell when the copy is complete.
    (void)driver_->await_stream(stream);
  return {code, "record an event"};
}

DeviceError DeviceCopies::wait() {
  for (std::size_t i = 0; i < tensors_; ++i) {
    Entry& entry = entries_[i];
    if (!entry.pending) continue;
    const CudaContext current(*driver_, entry.context);
    if (current.error() != 0) return {current.error(), "use the context of a stream"};
    if (const int code = wait_for(entry)) return {code, "complete a copy"};
  }
  return {};
}

bool LockedMemory::make(const CudaDriver& driver, std::size_t pieces) {
  if (!pieces_.make(pieces)) return false;
  driver_ = &driver;
  count_ = pieces;
  return true;
}

int LockedMemory::lock(std::size_t number, void* context, void* memory, std::size_t bytes,
                       unsigned flags) {
  Piece& piece = pieces_[number];
  if (piece.tried) return 0;
  piece.tried = true;
  const int code = driver_->lock_memory(memory, bytes, flags | CudaDriver::kLockPortable);
  if (code == 0) piece = {true, memory, context};
  return code;
}

LockedMemory::~LockedMemory() {
  for (std::size_t i = 0; i < count_; ++i) {
    if (!pieces_[i].memory) continue;
    const CudaContext current(*driver_, pieces_[i].context);
    (void)driver_->unlock_memory(pieces_[i].memory);
  }
}

}  // namespace bellows::ps
