// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "checkpoint/client/env.h"

namespace bellows::client {

/// The CUDA runtime of the program, where it has one loaded as a shared library. This library
/// neither links nor loads it. One thread at a time.
class Cuda {
 public:
  Cuda() = default;
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;
  ~Cuda();

  /// Looks for the runtime, which a program may load at any time.
  void look();
  /// Whether the pointer is to a device's memory.
  bool is_device(const void* data, int* device) const;

  /// Makes a buffer one that devices copy from and to directly, until it is released; where that
  /// is refused, copies are slower.
  bool register_host(void* buffer, std::size_t bytes);
  void release_host(void* buffer);

  /// Begins a copy from or to a device, behind all that the program has asked of it. When it fails,
  /// none is under way any more, and finish need not be called.
  int copy(void* to, const void* from, std::size_t bytes, int device, ErrorText* error);
  /// Leaves everything as it is, for good.
  void forget() { stream_ = nullptr; }
  /// Waits for the copies. BELLOWS_OK also when there were none.
  int finish(ErrorText* error);

 private:
  enum Function {
    kGetDevice,
    kSetDevice,
    kDeviceSynchronize,
    kPointerGetAttributes,
    kHostRegister,
    kHostUnregister,
    kStreamCreateWithFlags,
    kStreamSynchronize,
    kStreamDestroy,
    kMemcpyAsync,
    kGetLastError,
    kGetErrorString,
    kFunctions
  };

  bool loaded() const { return functions_[0]; }
  template <typename... Arguments>
  int call(Function function, Arguments... arguments) const;
  int settle(int device);
  int wait_for_copies();
  int check(int code, const char* what, ErrorText* error);

  void* functions_[kFunctions] = {};
  void* stream_ = nullptr;
  bool copying_ = false;
  int settled_ = -1;  ///< the device whose earlier work has been waited for
};

}  // namespace bellows::client
