// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "paramserver/client/array.h"
#include "paramserver/client/cuda_driver.h"

namespace bellows::ps {

/// What went wrong.
struct DeviceError {
  int code = 0;                ///< of CUDA; 0: nothing
  const char* what = nullptr;  ///< "copy a gradient"
  explicit operator bool() const { return code != 0; }
};

/// Copies of tensors in one direction. The last one of each tensor has an event behind it, by which
/// its end is known without waiting for anything else of the device.
class DeviceCopies {
 public:
  DeviceCopies() = default;
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  /// Waits for them.
  ~DeviceCopies();

  /// The driver outlives this object.
  bool make(const CudaDriver& driver, std::size_t tensors);

  /// Asks for a copy: `copy(context)` gives an error's number, with the stream's context current.
  /// It begins after the one of the same tensor before it, whatever that one's stream.
  template <typename Copy>
  DeviceError begin(std::size_t tensor, void* stream, Copy copy) {
    void* context = nullptr;
    int code = driver_->get_stream_context(stream, &context);
    if (code != 0) return {code, "find the context of a stream"};
    const CudaContext current(*driver_, context);
    if (current.error() != 0) return {current.error(), "use the context of a stream"};
    if (const DeviceError error = prepare(tensor, context, stream)) return error;
    if ((code = copy(context)) != 0) return {code, "copy a tensor"};
    return follow(tensor, stream);
  }
  /// Waits until those that have begun are complete. After an error it may be called again.
  DeviceError wait();

 private:
  struct Entry {
    void* event;
    void* context;  ///< the event's
    bool pending;
  };

  DeviceError prepare(std::size_t tensor, void* context, void* stream);
  DeviceError follow(std::size_t tensor, void* stream);

  int wait_for(Entry& entry);

  const CudaDriver* driver_ = nullptr;
  Array<Entry> entries_;
  std::size_t tensors_ = 0;
};

/// Page-locks pieces of memory for all devices, and unlocks them at its end.
class LockedMemory {
 public:
  LockedMemory() = default;
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;
  ~LockedMemory();

  /// For so many pieces. The driver outlives this object.
  bool make(const CudaDriver& driver, std::size_t pieces);
  /// Locks a piece, once; `context` is the current one. An error is told the first time only: the
  /// piece stays as it is, and copies of it are slower.
  int lock(std::size_t piece, void* context, void* memory, std::size_t bytes, unsigned flags);

 private:
  struct Piece {
    bool tried;
    void* memory;  ///< null: it could not be locked
    void* context;
  };

  const CudaDriver* driver_ = nullptr;
  Array<Piece> pieces_;
  std::size_t count_ = 0;
};

}  // namespace bellows::ps
