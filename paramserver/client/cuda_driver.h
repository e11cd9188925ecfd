// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace bellows::ps {

/// What learners need of NVIDIA's driver: functions of the libcuda.so.1 that the program has
/// loaded. This library neither links nor loads it. Each gives 0 or the number of an error.
struct CudaDriver {
  int (*get_stream_context)(void* stream, void** out);
  int (*push_context)(void* context);
  int (*pop_context)(void** out);
  int (*lock_memory)(void* memory, std::size_t bytes, unsigned flags);
  int (*unlock_memory)(void* memory);
  int (*copy_to_host)(void* to, unsigned long long from, std::size_t bytes, void* stream);
  int (*copy_to_device)(unsigned long long to, const void* from, std::size_t bytes, void* stream);
  int (*make_event)(void** out, unsigned flags);
  int (*end_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*await_event)(void* event);
  int (*stream_awaits_event)(void* stream, void* event, unsigned flags);
  int (*await_stream)(void* stream);
  int (*get_error_name)(int error, const char** out);

  // cuda.h's numbers.
  static constexpr unsigned kLockPortable = 1;
  static constexpr unsigned kLockReadOnly = 8;
  static constexpr unsigned kEventWithoutTime = 2;

  /// False: the program has loaded none, or one that lacks a function.
  bool find();
  /// "CUDA_ERROR_OUT_OF_MEMORY"
  const char* error_name(int error) const;
};

/// Makes a context the current one of this thread, as long as this lives.
class CudaContext {
 public:
  CudaContext(const CudaDriver& driver, void* context)
      : driver_(driver), error_(driver.push_context(context)) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() {
    void* context;
    if (error_ == 0) (void)driver_.pop_context(&context);
  }
  int error() const { return error_; }

 private:
  const CudaDriver& driver_;
  int error_;
};

}  // namespace bellows::ps
